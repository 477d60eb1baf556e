"""Steps that are really run, in real processes, under TensorFlow's real allocator."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

import legroom
from legroom.capture.limited import limited_environment
from legroom.errors import InputError, MissingError

TRAIN = """
import os
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"  # a rehearsal does not let it
import numpy as np, keras, tensorflow as tf
from keras import layers
tf.config.threading.set_inter_op_parallelism_threads(1)  # one order of operations: the same peak in every run
model = keras.Sequential([
    keras.Input((64, 64, 3)), layers.Conv2D(32, 3, activation="relu", name="first"),
    layers.Conv2D(32, 3, activation="relu", name="second"), layers.GlobalAveragePooling2D(), layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
print("made the model")
"""
FIT = 'model.fit(np.zeros((256, 64, 64, 3), "float32"), np.zeros((256,), "int32"), batch_size=64)'
MEASURED = """
x, y = tf.random.uniform((64, 64, 64, 3)), tf.zeros((64,), "int32")
for _ in range(3):
    tf.config.experimental.reset_memory_stats("CPU:0")
    model.train_on_batch(x, y)
    print("peak", tf.config.experimental.get_memory_info("CPU:0")["peak"])
"""
MADE = """
def build():
    import keras, numpy as np
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(512, name="wide"), keras.layers.Dense(4)])
    model.compile("sgd", "mse", run_eagerly=True)
    return model, (np.zeros((16, 256), "float32"), np.zeros((16, 4), "float32"))

import keras
class Doubled(keras.layers.Layer):
    def call(self, x):
        return 2 * x
"""
SCRIPTS = {
    "train.py": TRAIN + FIT,
    "measured.py": TRAIN.replace('OPTS"] = "1"', 'OPTS"] = "0"') + MEASURED,
    "made_here.py": MADE,
    "constant.py": "import numpy as np, tensorflow as tf\ntf.constant(np.ones((64, 1024, 1024), 'float32'))",
    "killed.py": "import os\nos.kill(os.getpid(), 9)",
    "crashed.py": "import os\nos.kill(os.getpid(), 11)",
    "never.py": "import sys\nprint('looking for data', file=sys.stderr)",
    "again.py": "import legroom\nlegroom.rehearse('again.py')",
    "on_jax.py": """
import os
os.environ["KERAS_BACKEND"] = "jax"
import numpy as np, keras
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
model.compile("sgd", "mse")
model.fit(np.zeros((8, 4)), np.zeros((8, 4)))
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rehearsed")
    for name, text in SCRIPTS.items():
        (folder / name).write_text(textwrap.dedent(text))
    return folder


def estimate(folder, *arguments):
    command = [sys.executable, "-m", "legroom", "estimate", *arguments, "--rehearse"]
    env = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"} | {"NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=env)


@pytest.fixture(scope="module")
def fitting(folder):
    """A rehearsal that fits, and what the same step takes in a plain script."""
    done = estimate(folder, "train.py", "--budget", "2GiB", "--json")
    assert done.returncode == 0, done.stderr
    assert "made the model" in done.stderr
    env = os.environ | limited_environment(2**31)
    plain = subprocess.run(
        [sys.executable, "measured.py"], capture_output=True, text=True, check=True, cwd=folder, env=env
    )
    peaks = [int(line.split()[1]) for line in plain.stdout.splitlines() if line.startswith("peak")]
    return json.loads(done.stdout), peaks


@pytest.mark.tensorflow
def test_the_peak_is_what_a_plain_script_measures(fitting):
    found, peaks = fitting
    assert (found["schema"], found["fits"], found["out_of_memory"]) == (1, True, None)
    assert (found["batch"], found["execution"], found["limit_bytes"]) == (64, "graph", 2**31)
    assert found["peak_bytes"] == pytest.approx(max(peaks[1:]), rel=0.005)
    assert found["first_step_peak_bytes"] == found["step_peaks_bytes"][0] == pytest.approx(peaks[0], rel=0.005)
    assert 64 * 64 * 64 * 3 * 4 < found["resident_bytes"] < found["peak_bytes"]


@pytest.mark.tensorflow
def test_half_the_peak_is_out_of_memory_and_names_who_asked_for_what(folder, fitting):
    done = estimate(folder, "train.py", "--budget", str(fitting[0]["peak_bytes"] // 2))
    assert done.returncode == 1, done.stderr
    assert "Batch 64 ran out of memory in training step 1" in done.stdout
    assert "second" in done.stdout
    assert "a float32 of shape (64, 60, 60, 32)" in done.stdout
    assert "Stats:" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.tensorflow
def test_an_array_past_the_limit_crashes_the_process_and_is_told_as_memory(folder):
    done = estimate(folder, "constant.py", "--budget", "100MiB", "--json")
    assert done.returncode == 1, done.stderr
    oom = json.loads(done.stdout)["out_of_memory"]
    assert (oom["signal"], oom["asked_bytes"], oom["during"]) == ("SIGSEGV", 2**28, "building")
    assert "constant.py:2" in oom["place"]


@pytest.mark.tensorflow
def test_a_function_and_a_model_of_this_process(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    import made_here

    found = legroom.rehearse(made_here.build, limit="64MiB", batch_size=1024)
    assert (found.fits, found.batch, found.execution, len(found.step_peaks)) == (True, 1024, "eager", 3)
    assert found.peak_bytes > 1024 * (256 + 512) * 4
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((64,)), made_here.Doubled(), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    batch = (np.zeros((8, 64), "float32"), np.zeros((8, 4), "float32"))
    weights = model.get_weights()[0]
    found = legroom.rehearse(model, batch, limit="64MiB", batch_size=4096)
    assert (found.fits, found.batch, found.execution) == (True, 4096, "graph")
    assert 4096 * 64 * 4 < found.resident_bytes < found.peak_bytes < 2**25
    assert (model.get_weights()[0] == weights).all()


@pytest.mark.tensorflow
def test_what_no_other_process_can_have_is_refused():
    import keras
    import numpy as np

    batch = (np.zeros((8, 4)), np.zeros((8, 4)))
    offset = 1.0
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    with pytest.raises(InputError, match="has not been compiled"):
        legroom.rehearse(model, batch)
    model.compile("sgd", lambda truth, guess: truth - guess + offset)
    with pytest.raises(InputError, match="refers to offset"):
        legroom.rehearse(model, batch)
    with pytest.raises(InputError, match="with a batch"):
        legroom.rehearse(model)
    with pytest.raises(InputError, match="top level of a module"):
        legroom.rehearse(lambda: (model, batch))
    with pytest.raises(InputError, match="type int"):
        legroom.rehearse(3)
    with pytest.raises(InputError, match="goes with a model only"):
        legroom.rehearse("train.py", batch)
    with pytest.raises(InputError, match="at least one example"):
        legroom.rehearse("made:up", batch_size=0)


@pytest.mark.jax
def test_jax_is_refused(folder):
    done = estimate(folder, "on_jax.py", "--budget", "1GiB")
    assert done.returncode == MissingError.exit_code, done.stderr
    assert "JAX cannot be rehearsed" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["killed.py", "--budget", "1GiB"], 1, "SIGKILL"),
        (["crashed.py", "--budget", "1GiB"], 3, "nothing in its log"),
        (["never.py"], 2, "looking for data"),
        (["again.py"], 2, "rehearsal already"),
        (["nosuch.py"], 2, "There is no script"),
        (["train.py", "--gpu", "t4"], 2, "on this CPU"),
        (["train.py", "--engine", "op"], 2, "predicts nothing"),
        (["train.py", "--batch", "0"], 2, "at least one example"),
        (["train.py", "--budget", "0"], 2, "no size"),
        (["train.py", "--budget", "lots"], 2, "Cannot read"),
        (["train.py", "--budget", "100KiB"], 2, "whole MiB"),
    ],
)
def test_what_cannot_be_rehearsed_gets_a_clear_answer(folder, arguments, code, says):
    done = estimate(folder, *arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
