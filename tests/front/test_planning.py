"""Plans for real models: searched, applied, taken back."""

import json
import os
import subprocess
import sys

import pytest

import legroom
from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow

MIB = 2**20


def images(batch_norm: bool = False):
    import keras
    import numpy as np
    from keras import layers as L

    keras.utils.set_random_seed(0)
    parts = [keras.Input((80, 80, 3))]
    for filters in (16, 32, 32, 32, 32):
        parts.append(L.Conv2D(filters, 3, padding="same", activation="relu"))
        parts += [L.BatchNormalization()] if batch_norm else []
    model = keras.Sequential([*parts, L.GlobalAveragePooling2D(), L.Dense(4)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model, (np.ones((32, 80, 80, 3), "float32"), np.zeros(32, "int64"))


@pytest.fixture(scope="module")
def planned():
    model, batch = images()
    plain = legroom.estimate(model, batch, engine="op")
    planning = legroom.plan(model, batch, budget=int(plain.high_bytes * 0.6), engine="op")
    return model, batch, plain, planning


def test_the_plan_that_is_chosen_fits_and_is_exact(planned):
    _, _, plain, planning = planned
    best = planning.best
    assert best is not None
    assert best.fits
    assert best.high_bytes <= planning.usable_bytes < planning.unchanged.high_bytes
    assert planning.unchanged.peak_bytes == plain.peak_bytes
    assert best.exactness == "exact"
    assert best.slowdown >= 1.0


def test_planning_leaves_the_model_as_it_was(planned):
    model, _, _, _ = planned
    assert "train_step" not in vars(model)
    assert not any("call" in vars(layer) for layer in model._flatten_layers())


def test_an_applied_plan_takes_what_was_said_and_undo_takes_it_back(planned):
    model, batch, plain, planning = planned
    legroom.apply(planning, model)
    try:
        assert legroom.estimate(model, batch, engine="op").peak_bytes == planning.best.peak_bytes
        with pytest.raises(InputError, match="applied already"):
            legroom.apply(planning, model)
    finally:
        legroom.undo(model)
    assert legroom.estimate(model, batch, engine="op").peak_bytes == plain.peak_bytes
    with pytest.raises(InputError, match="Nothing is applied"):
        legroom.undo(model)


def test_plans_are_saved_and_loaded(planned, tmp_path):
    _, _, _, planning = planned
    legroom.save_plan(planning, tmp_path / "plan.json")
    assert legroom.load_plan(tmp_path / "plan.json").best == planning.best
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="is not a plan"):
        legroom.load_plan(tmp_path / "other.json")


def test_batch_normalisation_is_not_split_unasked():
    model, batch = images(batch_norm=True)
    usable = int(legroom.estimate(model, batch, engine="op").high_bytes * 0.7)
    planning = legroom.plan(model, batch, budget=usable, engine="op")
    assert any("batchnorm-split" in reason for reason in planning.refused)
    assert not any(action.name == "microbatch" for plan in planning.plans for action in plan.actions)


def test_a_budget_below_the_weights_has_no_plan_and_says_the_smallest():
    model, batch = images()
    planning = legroom.plan(model, batch, budget="100KiB", engine="op")
    assert planning.chosen is None
    with pytest.raises(InputError, match="the smallest needs up to"):
        legroom.apply(planning, model)


def test_blocks_of_another_model_are_refused():
    from legroom.records.plan import Action, Plan

    model, _ = images()
    foreign = Plan((Action("remat", (("blocks", (("not_there",),)),)),), 1, 1, 1, True, 1.0)
    with pytest.raises(InputError, match="not_there"):
        legroom.apply(foreign, model)
    legroom.apply(Plan((), 1, 1, 1, True, 1.0), model)  # nothing was left behind by the one that failed
    legroom.undo(model)


SCRIPT = """
import keras, numpy as np
from keras import layers as L
model = keras.Sequential([keras.Input((48, 48, 3)), *[L.Conv2D(24, 3, padding="same", activation="relu") for _ in range(4)],
                          L.GlobalAveragePooling2D(), L.Dense(1)])
model.compile("sgd", "mse", jit_compile=False)
model.fit(np.ones((64, 48, 48, 3), "float32"), np.ones((64, 1), "float32"), batch_size=32)
"""
LOOP = """
import keras, tensorflow as tf
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD()
@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(tf.ones((8, 64))))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
step()
"""


def cli(tmp_path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "train.py").write_text(text)
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "LEGROOM_CACHE": str(tmp_path / "cache"), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "legroom", "plan", str(tmp_path / "train.py"), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_the_command_plans_a_script_and_speaks_json(tmp_path):
    done = cli(tmp_path, SCRIPT, "--budget", "120MiB", "--json", "--no-max-batch")
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout)
    chosen = view["plans"][view["chosen"]]
    assert view["schema"] == 1
    assert chosen["high_bytes"] <= 120 * MIB < view["unchanged"]["high_bytes"]
    assert chosen["exact"] is True
    assert chosen["actions"][0]["name"] in ("microbatch", "remat")


def test_a_loop_that_fetches_its_batch_itself_is_refused_without_a_traceback(tmp_path):
    done = cli(tmp_path, LOOP, "--budget", "1KiB", "--no-max-batch")
    assert done.returncode == 1, done.stderr
    assert "microbatch: the batch has one example, or its size is not known" in done.stdout
    assert "Traceback" not in done.stderr


def test_what_may_be_allowed_is_named(tmp_path):
    done = cli(tmp_path, SCRIPT, "--allow", "everything")
    assert done.returncode == 2
    assert "mixed-precision" in done.stderr


def test_the_command_names_the_largest_batches_and_what_the_plan_is_for(tmp_path):
    done = cli(tmp_path, SCRIPT, "--budget", "120MiB", "--json")
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout)
    assert view["max_batch"] < 32 <= view["max_batch_planned"]
    assert view["made_for"]["optimizer"] == "SGD"
    assert view["made_for"]["inputs"] == ["float32[?,48,48,3]"]


def test_the_command_advises_where_nothing_fits(tmp_path):
    done = cli(tmp_path, SCRIPT, "--budget", "3MiB", "--no-max-batch", "--json")
    assert done.returncode == 1, done.stderr
    view = json.loads(done.stdout)
    assert view["chosen"] is None
    assert view["max_batch"] is None
    assert view["max_batch_planned"] is None
    assert "the most is held by" in view["advice"][0]
    assert any(text.startswith("if the input were 36×36 instead of 48×48: up to") for text in view["advice"])
