"""Plans of every kind of action, for real models: estimated by the engine that they would run under, applied, taken back."""

import json
import os
import subprocess
import sys

import pytest

import legroom

pytestmark = pytest.mark.tensorflow


def net(*, dropout: float = 0.0, batch_norm: bool = False, optimizer: str = "sgd", jit_compile: bool = False):
    import keras
    import numpy as np
    from keras import layers as L

    keras.utils.set_random_seed(0)
    parts = [keras.Input((64, 64, 3))]
    for filters in (16, 32, 32, 32):
        parts.append(L.Conv2D(filters, 3, padding="same", activation="relu"))
        parts += [L.BatchNormalization()] if batch_norm else []
        parts += [L.Dropout(dropout)] if dropout else []
    model = keras.Sequential([*parts, L.GlobalAveragePooling2D(), L.Dense(4)])
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    return model, (np.ones((32, 64, 64, 3), "float32"), np.zeros((32, 4), "float32"))


def names(plan) -> list[str]:
    return [action.name for action in plan.actions]


def test_dropout_is_tried_first_and_is_enough_where_masks_are_what_is_too_much():
    model, batch = net(dropout=0.2)
    plain = legroom.estimate(model, batch, gpu="t4", engine="op")
    planning = legroom.plan(model, batch, gpu="t4", budget=int(plain.high_bytes * 0.95), engine="op")
    assert names(planning.best) == ["dropout"]
    assert planning.best.exactness == "exact"
    legroom.apply(planning, model)
    usable = planning.usable_bytes
    assert legroom.estimate(model, batch, gpu="t4", budget=usable, engine="op").peak_bytes == planning.best.peak_bytes
    legroom.undo(model)


def test_recomputed_layers_are_part_of_the_estimate():
    from legroom.changes.actions import perform
    from legroom.records.plan import Action

    model, batch = net(dropout=0.2)
    layers = [layer.name for layer in model.layers]
    plain = legroom.estimate(model, batch, gpu="t4", engine="op").peak_bytes
    done = perform(model, [Action("remat", (("blocks", (tuple(layers[:4]), tuple(layers[4:8]))),))])
    assert legroom.estimate(model, batch, gpu="t4", engine="op").peak_bytes < plain
    both = perform(model, [Action("dropout")])
    assert legroom.estimate(model, batch, gpu="t4", engine="op").peak_bytes < plain
    both.undo()
    done.undo()
    assert legroom.estimate(model, batch, gpu="t4", engine="op").peak_bytes == plain


def test_another_optimizer_is_part_of_the_estimate_and_needs_leave():
    import keras
    import numpy as np
    from keras import layers as L

    model = keras.Sequential([keras.Input((512,)), *[L.Dense(512) for _ in range(4)]])
    model.compile("adam", "mse", jit_compile=False)
    batch = (np.ones((8, 512), "float32"), np.zeros((8, 512), "float32"))
    plain = legroom.estimate(model, batch, gpu="t4", engine="op")
    budget = int(plain.high_bytes * 0.7)
    assert legroom.plan(model, batch, gpu="t4", budget=budget, engine="op").best is None
    planning = legroom.plan(model, batch, gpu="t4", budget=budget, engine="op", allow=("optimizer",))
    assert names(planning.best) == ["optimizer"]
    assert planning.best.exactness == "inexact"
    assert "learns differently" in planning.best.reasons[0]
    own = model.optimizer
    legroom.apply(planning, model)
    found = legroom.estimate(model, batch, gpu="t4", budget=budget, engine="op")
    assert found.peak_bytes == planning.best.peak_bytes
    legroom.undo(model)
    assert model.optimizer is own


def test_an_old_card_refuses_mixed_precision_and_a_t4_takes_float16():
    model, batch = net()
    old = legroom.plan(model, batch, gpu="p100", budget="20MiB", engine="op", allow=("mixed-precision",))
    assert any("compute capability 6.0" in reason for reason in old.refused)
    plain = legroom.estimate(model, batch, gpu="t4", engine="op")
    budget = int(plain.high_bytes * 0.8)
    found = legroom.plan(model, batch, gpu="t4", budget=budget, engine="op", allow=("mixed-precision",))
    policies = [action["policy"] for plan in found.plans for action in plan.actions if action.name == "mixed_precision"]
    assert policies == ["mixed_float16"]
    assert found.best.exactness == "exact"


@pytest.mark.oracle
def test_compiled_steps_are_held_to_less_memory_by_xla_itself():
    model, batch = net(batch_norm=True, jit_compile=True)
    plain = legroom.estimate(model, batch, gpu="t4", jit_compile=True)
    planning = legroom.plan(model, batch, gpu="t4", budget=int(plain.high_bytes * 0.9), jit_compile=True)
    tried = [plan for plan in planning.plans if "xla_memory" in names(plan)]
    assert tried
    assert tried[0].peak_bytes < plain.peak_bytes
    assert tried[0].exactness == "exact"
    with pytest.warns(UserWarning, match="XLA_FLAGS=--xla_gpu_memory_limit_slop_factor="):
        legroom.apply(tried[0], model)
    legroom.undo(model)


@pytest.mark.oracle
def test_a_step_is_estimated_as_it_would_run_compiled_or_not():
    from legroom.front.estimating import Estimator, capture_here
    from legroom.front.local_source import LocalSource
    from legroom.front.target import choose_card
    from legroom.records.plan import Action

    model, batch = net()
    with Estimator(LocalSource(capture_here(model, batch, False)), choose_card("t4", None)) as estimator:
        plain = estimator.at(None)
        assert estimator.change((Action("compile", (("jit_compile", True),)),)).exactness == "exact"
        compiled = estimator.at(None)
        estimator.change(())
        again = estimator.at(None)
    assert (plain.engine, compiled.engine, again.engine) == ("op", "xla", "op")
    assert compiled.peak_bytes == legroom.estimate(model, batch, gpu="t4", jit_compile=True).peak_bytes
    assert not any("runs op by op" in note for note in compiled.notes)
    assert again.peak_bytes == plain.peak_bytes


ARRAYS = """
import keras, numpy as np
from keras import layers as L
model = keras.Sequential([keras.Input((48, 48, 3)), *[L.Conv2D(24, 3, padding="same", activation="relu") for _ in range(4)],
                          L.GlobalAveragePooling2D(), L.Dense(1)])
model.compile("sgd", "mse", jit_compile=False)
model.fit(np.ones((3200, 48, 48, 3), "float32"), np.ones((3200, 1), "float32"), batch_size=32)
"""


def test_a_scripts_arrays_are_kept_in_ram_before_anything_else_is_changed(tmp_path):
    (tmp_path / "train.py").write_text(ARRAYS)
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "LEGROOM_CACHE": str(tmp_path / "cache"), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "legroom", "plan", "train.py", "--gpu", "t4", "--budget", "120MiB", "--json"]
    done = subprocess.run(
        [*command, "--no-max-batch"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout)
    chosen = view["plans"][view["chosen"]]
    assert chosen["actions"] == [{"name": "host_data"}]
    arrays = 3200 * 48 * 48 * 3 * 4 + 3200 * 4
    assert view["unchanged"]["peak_bytes"] - chosen["peak_bytes"] == arrays


CARD = """
[small]
name = "A small card"
memory = "2 GiB"
compute_capability = "9.0"
"""


def wide_mlp():
    """Its batch is a quarter of the card: TensorFlow's own pool needs room for it in one piece."""
    import keras
    import numpy as np
    from keras import layers as L

    model = keras.Sequential([keras.Input((784,)), L.Dense(512, "relu"), L.Dense(512, "relu"), L.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model, (np.zeros((120_000, 784), "float32"), np.zeros((120_000,), "int64"))


def test_a_pool_that_does_not_tear_is_enough_where_tears_are_what_is_too_much(tmp_path, monkeypatch):
    from legroom.changes.actions import missing_settings

    card = tmp_path / "card.toml"
    card.write_text(CARD)
    model, batch = wide_mlp()
    planning = legroom.plan(model, batch, gpu=str(card), engine="op")
    assert names(planning.best) == ["allocator"]
    assert planning.best.exactness == "exact"
    assert not planning.unchanged.fits
    setting = "TF_GPU_ALLOCATOR=cuda_malloc_async"
    assert missing_settings(planning.best.actions, {})[0].endswith(setting)
    assert not missing_settings(planning.best.actions, dict([setting.split("=")]))
    monkeypatch.setenv(*setting.split("="))
    found = legroom.estimate(model, batch, gpu=str(card), engine="op")
    assert found.fits
    assert found.peak_bytes == planning.best.peak_bytes


def test_no_pool_is_offered_that_no_limit_can_be_set_to():
    model, batch = wide_mlp()
    planning = legroom.plan(model, batch, gpu="h100", budget="900MiB", engine="op")
    assert not any("allocator" in names(plan) for plan in planning.plans)


def test_a_process_that_trains_on_is_offered_nothing_that_it_must_be_started_with(tmp_path):
    from legroom.front.estimating import capture_here
    from legroom.front.fitting import plan_of_step
    from legroom.front.target import choose_card

    card = tmp_path / "card.toml"
    card.write_text(CARD)
    model, batch = wide_mlp()
    captured = capture_here(model, batch, jit_compile=False)
    planning = plan_of_step(captured, choose_card(str(card), None), ())
    assert planning.best is not None
    assert not any("allocator" in names(plan) for plan in planning.plans)
