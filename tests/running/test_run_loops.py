"""Training loops of one's own: guarded under `legroom run`, and kept and resumed by `legroom.Checkpoint`."""

import json
import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tensorflow

LOOP = """
import json, os, pathlib, signal
import keras, numpy as np, tensorflow as tf
import legroom
if not os.environ.get("UNSEEDED"):
    keras.utils.set_random_seed(5)
x = np.random.default_rng(0).random((96, 8)).astype("float32")
y = x.sum(1, keepdims=True)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.3),
                          keras.layers.BatchNormalization(), keras.layers.Dense(1)])
optimizer, seen = keras.optimizers.Adam(1e-2), keras.metrics.Mean()
count = tf.Variable(0, dtype=tf.int64)

def die(epoch, batch):
    mark = pathlib.Path("died")
    if os.environ.get("DIE") == f"{epoch},{batch}" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    seen.update_state(loss)
    return loss

def tell(**more):
    weights = [np.asarray(w).astype("float64").sum().item() for w in model.get_weights()]
    print("TOLD " + json.dumps({"weights": weights, "seen": float(seen.result()), "count": int(count),
                                "iterations": int(optimizer.iterations), **more}))
"""
KEPT = """
data = DATA
keep = legroom.Checkpoint(model, optimizer, [seen, count], FOLDER)
for epoch in keep.epochs(4):
    seen.reset_state()
    for number, (xs, ys) in enumerate(keep.batches(data)):
        die(epoch, number)
        step(xs, ys)
        count.assign_add(len(xs))
    keep.values["best"] = min(keep.values.get("best", 9.0), float(seen.result()))
tell(best=keep.values["best"])
"""
DATASET = "tf.data.Dataset.from_tensor_slices((x, y)).shuffle(96).batch(8)"


def python(folder, body, *options, under_run=True, **environment):
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(LOOP + body)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1", "NO_COLOR": "1"}
    verb = ["-m", "legroom", "run", *options] if under_run else []
    done = subprocess.run(
        [sys.executable, *verb, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **quiet, **environment},
        check=False,
    )
    told = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    return done, told[-1] if told else None


def kept(data=DATASET, folder=""):
    return KEPT.replace("DATA", data).replace(", FOLDER", folder)


@pytest.mark.parametrize("data", [DATASET, "legroom.stream((x, y), batch_size=8, ram='8MiB', seed=1, verbose=False)"])
def test_a_killed_loop_ends_as_if_it_had_not_been(tmp_path, data):
    _, right = python(tmp_path / "plain", kept(data, ", folder='states'"), under_run=False)
    done, found = python(tmp_path / "killed", kept(data), "--checkpoint-every", "0s", DIE="2,5")
    assert done.returncode == 0, done.stderr
    assert "the loop goes on at epoch 3, step 5" in done.stderr
    assert right is not None
    assert found == right


def test_without_legroom_run_the_second_start_goes_on(tmp_path):
    body = kept(folder=", folder='states'")
    _, right = python(tmp_path / "plain", body, under_run=False)
    first, _ = python(tmp_path / "killed", body, under_run=False, DIE="2,5")
    assert first.returncode == -signal.SIGKILL
    second, found = python(tmp_path / "killed", body, under_run=False, DIE="2,5")
    assert "the loop goes on at epoch 3." in second.stderr
    assert found == right
    assert not (tmp_path / "killed" / "states").exists()


def test_an_order_that_nobody_knows_begins_the_epoch_again(tmp_path):
    body = kept().replace("tell(best", "assert int(count) == 4 * 96\ntell(best")
    done, found = python(tmp_path / "killed", body, "--checkpoint-every", "0s", DIE="2,5", UNSEEDED="1")
    assert done.returncode == 0, done.stderr
    assert "this epoch is begun again" in done.stderr
    assert found["iterations"] == 4 * 12


WIDE = """
wide = keras.Sequential([keras.Input((512, 8)), *[keras.layers.Dense(48, activation="relu") for _ in range(4)],
                         keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
xs = np.random.default_rng(1).random((64, 512, 8)).astype("float32")
ys = xs.mean((1, 2))[:, None]
"""
FUNCTION = (
    WIDE
    + """
sgd = keras.optimizers.SGD(0.05, momentum=0.9)
@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((wide(x, training=True) - y) ** 2)
    sgd.apply_gradients(zip(tape.gradient(loss, wide.trainable_variables), wide.trainable_variables))
    seen.update_state(loss)
    return loss
losses = [float(train(xs, ys)) for _ in range(3)]
print("TOLD " + json.dumps({"losses": losses, "seen": float(seen.result()), "iterations": int(sgd.iterations)}))
"""
)
ON_BATCH = (
    WIDE
    + """
wide.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", jit_compile=False)
losses = [float(wide.train_on_batch(xs, ys)) for _ in range(3)]
print("TOLD " + json.dumps({"losses": losses, "iterations": int(wide.optimizer.iterations)}))
"""
)


@pytest.mark.parametrize(
    "body", [FUNCTION, pytest.param(ON_BATCH, marks=pytest.mark.slow)], ids=["function", "on_batch"]
)
def test_steps_that_do_not_fit_are_taken_in_micro_batches(tmp_path, body):
    _, right = python(tmp_path / "plain", body, under_run=False, TF_ENABLE_ONEDNN_OPTS="0")
    done, found = python(tmp_path / "short", body, "--no-plan", "--budget", "24MiB")
    assert done.returncode == 0, done.stderr
    assert "The same batch is taken again in 2 micro-batches of 32" in done.stderr
    assert found["iterations"] == right["iterations"] == 3
    assert found["losses"] == pytest.approx(right["losses"], rel=1e-4)


@pytest.mark.parametrize("trained", [False, True])
def test_a_crash_under_a_budget_is_not_tried_again_where_nothing_was_trained(tmp_path, trained):
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    body = WIDE + crash if not trained else FUNCTION.replace("for _ in range(3)]", "for _ in range(1)]\n" + crash)
    done, _ = python(tmp_path, body, "--no-plan", "--restarts", "1", "--budget", "100MiB")
    assert done.returncode == 128 + signal.SIGSEGV
    assert ("restart 1 of 1" in done.stderr) == trained
    assert ("the budget of 100 MiB is most likely smaller" in done.stderr) != trained


def test_a_step_of_ones_own_is_planned(tmp_path):
    _, right = python(tmp_path / "plain", FUNCTION, under_run=False, TF_ENABLE_ONEDNN_OPTS="0")
    done, found = python(tmp_path / "short", FUNCTION, "--budget", "40MiB")
    assert done.returncode == 0, done.stderr
    assert "micro-batches" in done.stderr
    assert "ran out of memory" not in done.stderr
    assert found["losses"] == pytest.approx(right["losses"], rel=1e-4)


def test_a_loop_outside_of_functions_is_said_to_be_unguarded(tmp_path):
    body = "step.python_function(x[:8], y[:8])\nstep.python_function(x[:8], y[:8])\n"
    done, _ = python(tmp_path, body)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("outside of a tf.function") == 1


FOLDS = """
import gc, weakref

def fold(decorate):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    sgd = keras.optimizers.SGD(0.1)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        sgd.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss
    step = decorate(step)
    for _ in range(2):
        step(x[:8], y[:8])
    return weakref.ref(model)

found = []
for decorate in (tf.function, lambda step: legroom.train_step(tf.function(step), guard=True), legroom.train_step(guard=True)):
    found.append(fold(decorate))
    keras.utils.clear_session()
    gc.collect()
print("TOLD " + json.dumps({"gone": [ref() is None for ref in found]}))
"""


def test_models_that_were_trained_go_away_and_a_guarded_step_is_not_guarded_twice(tmp_path):
    done, found = python(tmp_path, FOLDS)
    assert found == {"gone": [True, True, True]}, done.stderr
    assert "legroom:" not in done.stderr


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ("legroom.Checkpoint(folder='s')", "nothing to keep"),
        ("legroom.Checkpoint(model)", "needs a folder"),
        ("legroom.Checkpoint(lambda: 0, folder='s')", "cannot keep a function"),
        ("legroom.Checkpoint(keras.Sequential([keras.layers.Dense(1)]), folder='s')", "no weights yet"),
        ("legroom.Checkpoint(model, folder='train.py/s')", "cannot be kept in"),
    ],
)
def test_what_cannot_be_kept_is_said_at_once(tmp_path, make, message, monkeypatch):
    import keras

    import legroom

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(legroom.LegroomError, match=message):
        next(eval(make, {"legroom": legroom, "keras": keras, "model": model}).epochs(2))


def test_states_of_another_model_are_refused(tmp_path):
    import keras

    import legroom

    def loop(width):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(width)])
        return legroom.Checkpoint(model, folder=tmp_path / "states").epochs(2)

    next(loop(1))
    with pytest.raises(legroom.LegroomError, match="of other variables"):
        next(loop(3))


def test_values_must_be_plain(tmp_path):
    import keras

    import legroom

    keep = legroom.Checkpoint(keras.metrics.Mean(), folder=tmp_path / "states")
    keep.values["bad"] = object()
    with pytest.raises(legroom.LegroomError, match="must be plain"):
        next(keep.epochs(1))


def test_metrics_that_keras_makes_later_are_no_hindrance(tmp_path):
    import keras
    import numpy as np

    import legroom

    def loop():
        keras.utils.clear_session()
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
        return model, legroom.Checkpoint(model, model.optimizer, folder=tmp_path / "states", every=0)

    data = [(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"))] * 3
    model, keep = loop()
    for _ in keep.epochs(2):
        for number, batch in enumerate(keep.batches(data)):
            model.train_on_batch(*batch)
            if number == 2:
                break
        break
    model, keep = loop()
    assert next(keep.epochs(2)) == 0
    assert int(model.optimizer.iterations) == 2
