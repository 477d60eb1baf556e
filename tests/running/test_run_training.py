"""Keras scripts under `legroom run`, in processes of their own: killed, resumed, out of memory."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tensorflow

START = """
import json, os, pathlib, signal, sys
import keras, numpy as np
keras.utils.set_random_seed(5)
x = np.random.default_rng(0).random((96, 8)).astype("float32")
y = x.sum(1, keepdims=True)

class Die(keras.callbacks.Callback):
    "Kills the process, once, at a batch of an epoch."
    def __init__(self, epoch, batch, name="died"):
        super().__init__()
        self.at, self.mark, self.now = (epoch, batch), pathlib.Path(name), 0
    def on_epoch_begin(self, epoch, logs=None):
        self.now = epoch
    def on_train_batch_begin(self, batch, logs=None):
        if os.environ.get("DIE") and (self.now, batch) == self.at and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

def make(**given):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.3),
                              keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"], **{"jit_compile": False, **given})
    return model

def tell(model, history, **more):
    weights = [np.asarray(w).astype("float64").sum().item() for w in model.get_weights()]
    print("TOLD " + json.dumps({"weights": weights, "history": history.history, "epoch": history.epoch,
                                "iterations": int(model.optimizer.iterations), **more}))
"""


def run(folder, body, *options, die=True, plain=False, backend="tensorflow", group=None):
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(START + body)
    verb = [] if plain else ["-m", "legroom", "run", *options]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": "-1", "NO_COLOR": "1"}
    env = {**os.environ, **quiet, "JAX_PLATFORMS": "cpu", **({"DIE": "1"} if die else {})}
    command = [sys.executable, *verb, "train.py"]
    if group is not None:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, check=False)
    told = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    return done, told[-1] if told else None


KILLED = """
stop = keras.callbacks.EarlyStopping(monitor="loss", patience=50, restore_best_weights=True)
rate = keras.callbacks.ReduceLROnPlateau(monitor="mae", patience=0, min_delta=9.0, factor=0.5)
rows = keras.callbacks.CSVLogger("rows.csv")
model = make()
history = model.fit(x, y, batch_size=8, epochs=4, verbose=0, validation_split=0.25, callbacks=[stop, rate, rows, Die(2, 5)])
tell(model, history, best=float(stop.best), wait=stop.wait, rows=pathlib.Path("rows.csv").read_text())
"""


def test_a_killed_training_ends_as_if_it_had_not_been(tmp_path):
    _, right = run(tmp_path / "plain", KILLED, die=False, plain=True)
    done, found = run(tmp_path / "killed", KILLED, "--checkpoint-every", "0s")
    assert done.returncode == 0, done.stderr
    assert "It goes on at epoch 3, step 5" in done.stderr
    assert found == right


def test_a_script_that_takes_warnings_for_errors(tmp_path):
    body = "import warnings\nwarnings.simplefilter('error', DeprecationWarning)\nmodel = make()\nmodel.fit(x, y, verbose=0)\n"
    done, _ = run(tmp_path, body, "--checkpoint-every", "0s", die=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_resumed_at_the_end_of_an_epoch(tmp_path):
    _, right = run(tmp_path / "plain", KILLED, die=False, plain=True)
    done, found = run(tmp_path / "killed", KILLED)
    assert "It goes on at epoch 3, kept" in done.stderr
    assert found == right


def test_data_in_another_order_begin_the_epoch_again(tmp_path):
    body = """
eye = np.eye(96, dtype="float32")
model = keras.Sequential([keras.Input((96,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
model.compile(keras.optimizers.SGD(1.0), lambda y, p: -keras.ops.sum(p), jit_compile=False)
def batches():
    order = np.random.default_rng()
    while True:
        places = order.permutation(96)
        for start in range(0, 96, 8):
            yield eye[places[start : start + 8]], y[:8]
history = model.fit(batches(), steps_per_epoch=12, epochs=3, verbose=0, callbacks=[Die(1, 7)])
print("TOLD " + json.dumps(model.get_weights()[0].ravel().tolist()))
"""
    done, found = run(tmp_path, body, "--checkpoint-every", "0s")
    assert "another order" in done.stderr
    assert found == [3.0] * 96


@pytest.mark.jax
def test_on_jax(tmp_path):
    body = """
model = make(jit_compile=True)
history = model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=[Die(1, 5)])
tell(model, history)
"""
    _, right = run(tmp_path / "plain", body, die=False, plain=True, backend="jax")
    done, found = run(tmp_path / "killed", body, backend="jax")
    assert done.returncode == 0, done.stderr
    assert found == right


def test_trainings_that_were_done_are_not_done_again(tmp_path):
    body = """
first = make()
one = first.fit(x, y, batch_size=8, epochs=2, verbose=0)
print("BETWEEN", first.predict(x[:2], verbose=0).ravel().tolist())
first.compile("sgd", "mse", jit_compile=False)
two = first.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=[Die(1, 2)])
tell(first, two, one=one.history)
"""
    plain, right = run(tmp_path / "plain", body, die=False, plain=True)
    done, found = run(tmp_path / "killed", body)
    assert found == right
    between = [line for line in (plain.stdout + done.stdout).splitlines() if line.startswith("BETWEEN")]
    assert len(between) == 3
    assert len(set(between)) == 1


LARGE = """
x = np.random.default_rng(0).random((64, 256, 256)).astype("float32")
y = x[:, 0, :1]
layers = [keras.layers.Dense(256, activation="relu") for _ in range(6)]
model = keras.Sequential([keras.Input((256, 256)), *layers, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=False)
"""


@pytest.mark.parametrize("option", ["--no-plan", pytest.param("--plan", marks=pytest.mark.slow)])
def test_a_budget_is_real_and_the_training_fits_it(tmp_path, option):
    body = LARGE + "history = model.fit(x, y, batch_size=64, epochs=1, verbose=0)\ntell(model, history)\n"
    done, found = run(tmp_path, body, "--budget", "400MiB" if option == "--plan" else "110MiB", option)
    assert done.returncode == 0, done.stderr[-2000:]
    assert found["iterations"] == 1
    assert ("training with" if option == "--plan" else "ran out of memory") in done.stderr


def test_no_room_for_one_sample_is_said_and_a_script_that_catches_the_error_still_can(tmp_path):
    body = """
x, y = np.ones((1, 8, 8, 1), "float32"), np.ones((1, 8), "float32")
parts = [keras.layers.UpSampling2D(128), keras.layers.Dense(16), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(8)]
model = keras.Sequential([keras.Input((8, 8, 1)), *parts])
model.compile("sgd", "mse", jit_compile=False)
import tensorflow as tf
try:
    model.fit(x, y, batch_size=1, verbose=0)
except tf.errors.ResourceExhaustedError:
    print("TOLD " + json.dumps(int(model.optimizer.iterations)), flush=True)
    raise
"""
    done, found = run(tmp_path, body, "--budget", "40MiB", "--no-plan")
    assert found == 0
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "nothing is left to try" in done.stderr


def test_what_a_forked_process_trains_is_its_own(tmp_path):
    body = """
child = os.fork()
if child == 0:
    model = make(run_eagerly=True)
    model.fit(x[:8], y[:8], batch_size=8, epochs=1, verbose=0)
    os._exit(0)
os.waitpid(child, 0)
model = make()
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[Die(1, 0)])
tell(model, history)
"""
    done, found = run(tmp_path, body)
    assert done.returncode == 0, done.stderr[-2000:]
    assert found["epoch"] == [0, 1]


@pytest.mark.slow
def test_it_runs_under_pytest_too(tmp_path):
    (tmp_path / "test_it.py").write_text(
        START
        + """
def test_training():
    model = make()
    assert len(model.fit(x, y, batch_size=8, epochs=2, verbose=0).epoch) == 2
"""
    )
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    command = [sys.executable, "-m", "legroom", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout
    assert not pathlib.Path(tmp_path / ".legroom").exists()


HUNGRY = """
class Hungry(Die):
    "Takes memory until the kernel ends it, once."
    def on_train_batch_begin(self, batch, logs=None):
        if os.environ.get("DIE") and (self.now, batch) == self.at and not self.mark.exists():
            self.mark.touch()
            held = []
            while True:
                held.append(np.ones(8 << 20))

model = make()
history = model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=[Hungry(1, 5)])
tell(model, history)
"""


@pytest.fixture
def memory_group():
    """A control group of its own, with a limit; where this machine allows none, the test is left out."""
    for parent, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(parent) / f"legroom_test_{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(1500 << 20))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        yield group
        group.rmdir()
        return
    pytest.skip("no control group can be made here")


def test_a_real_kill_by_the_kernel_is_known_for_what_it_is(tmp_path, memory_group):
    _, right = run(tmp_path / "plain", HUNGRY, die=False, plain=True)
    done, found = run(tmp_path / "killed", HUNGRY, "--checkpoint-every", "0s", group=memory_group)
    assert done.returncode == 0, done.stderr
    assert "The kernel killed the script's process: memory ran out." in done.stderr
    assert "the limit is 1.5 GiB" in done.stderr
    assert "It goes on at epoch 2, step 5" in done.stderr
    assert found == right
