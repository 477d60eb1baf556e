"""Plans for training steps that a user wrote: captured from a call or from a script, changed, estimated, put back."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tensorflow

MIB = 2**20
LIMIT = 125 * MIB  # with room for what other tests of this process may have left on the device


def captured(*extra, models=1):
    """A `@tf.function` step over small images, as its first call is captured."""
    import keras
    import tensorflow as tf
    from keras import layers as L

    from legroom.capture.tf_step import capture_call

    keras.utils.set_random_seed(0)

    def make():
        parts = [keras.Input((48, 48, 3)), *[L.Conv2D(24, 3, padding="same", activation="relu") for _ in range(4)]]
        return keras.Sequential([*parts, *(one() for one in extra), L.GlobalAveragePooling2D(), L.Dense(1)])

    first, *others = [make() for _ in range(models)]
    optimizer = keras.optimizers.SGD()

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            p = first(x, training=True)
            for other in others:
                p += other(x, training=True)
            loss = tf.reduce_mean((p - y) ** 2)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, first.trainable_variables), 1.0)
        optimizer.apply_gradients(zip(gradients, first.trainable_variables, strict=True))
        return loss

    found = capture_call(step, (tf.ones((32, 48, 48, 3)), tf.ones((32, 1))), {})
    assert found is not None
    return found, first


def planned(step, budget, allow=()):
    from legroom.front.estimating import Estimator
    from legroom.front.local_source import LocalSource
    from legroom.front.planning import Planner
    from legroom.front.target import choose_card

    source = LocalSource(step)
    with Estimator(source, choose_card(None, budget), "op") as estimator:
        return Planner(estimator, None, allow).run(max_batch=False), source


def test_a_function_is_planned_in_micro_batches_and_put_back():
    step, model = captured()
    planning, source = planned(step, LIMIT)
    assert planning.unchanged.high_bytes > LIMIT
    assert planning.best is not None
    assert planning.best.high_bytes <= LIMIT
    assert planning.best.actions[0].name == "microbatch"
    assert planning.best.exactness == "exact"
    assert source.captured is step
    assert not any("call" in vars(layer) for layer in model._flatten_layers())


def test_normalisation_is_not_split_unasked():
    import keras

    step, _ = captured(keras.layers.BatchNormalization)
    planning, _ = planned(step, 100 * MIB)
    assert any("batchnorm-split" in reason for reason in planning.refused)
    assert not any(action.name == "microbatch" for plan in planning.plans for action in plan.actions)


def test_layers_are_recomputed_in_the_one_model_of_a_step_and_not_in_one_of_several():
    from legroom.front.local_source import LocalSource
    from legroom.records.plan import Action, Effect

    step, model = captured()
    names = tuple(layer.name for layer in model.layers[:3])
    source = LocalSource(step)
    actions = (Action("remat", (("blocks", (names,)),)), Action("microbatch", (("count", 2),)))
    assert source.change(actions) == Effect(tried=("step 'step'",))
    assert source.captured.function is not step.function
    source.change(())
    assert source.captured is step
    assert source.segments(32)

    step, _ = captured(models=2)
    planning, _ = planned(step, 60 * MIB)
    assert any("computes with 2 models" in reason for reason in planning.refused)


SCRIPT = """
import keras, tensorflow as tf
model = keras.Sequential([keras.Input((48, 48, 3)), *[keras.layers.Conv2D(24, 3, padding="same") for _ in range(4)],
                          keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD()
dataset = tf.data.Dataset.from_tensor_slices((tf.ones((64, 48, 48, 3)), tf.ones((64, 1)))).batch(32)
for number, (x, y) in enumerate(dataset):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    if number % 100 == 0:
        print("loss", float(loss))
"""


DECORATED = (
    SCRIPT.split("dataset =", maxsplit=1)[0]
    + """
import legroom
@legroom.train_step(micro_batches=4)
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
step(tf.ones((32, 48, 48, 3)), tf.ones((32, 1)))
"""
)


def environment(tmp_path):
    return os.environ | {"KERAS_BACKEND": "tensorflow", "LEGROOM_CACHE": str(tmp_path / "cache"), "NO_COLOR": "1"}


@pytest.mark.slow
def test_a_decorated_step_is_captured_with_its_whole_batch(tmp_path):
    (tmp_path / "train.py").write_text(DECORATED)
    command = [sys.executable, "-m", "legroom", "estimate", str(tmp_path / "train.py"), "--budget", "1GiB", "--json"]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout)
    assert view["batch"] == 32
    assert view["peak_bytes"] < 55 * MIB


def test_an_eager_loop_of_a_script_is_planned(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "legroom",
        "plan",
        str(tmp_path / "train.py"),
        "--budget",
        "55MiB",
        "--no-max-batch",
    ]
    done = subprocess.run([*command, "--json"], env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout)
    chosen = view["plans"][view["chosen"]]
    assert chosen["actions"][0]["name"] == "microbatch"
    assert chosen["high_bytes"] <= 55 * MIB < view["unchanged"]["high_bytes"]
