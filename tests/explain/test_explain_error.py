"""`legroom.explain(error)`: the exception itself, the user's line of code, the Keras layer."""

import os
import subprocess
import sys

import numpy as np
import pytest

import legroom
from legroom.records.diagnosis import Diagnosis


def test_a_numpy_error_with_the_line_of_the_user():
    try:
        np.zeros((10_000_000, 1000, 1000))
    except MemoryError as error:
        found = legroom.explain(error)
    assert isinstance(found, Diagnosis)
    assert found.cause == "host_ram_dataset"
    assert found.tensor_shape == (10_000_000, 1000, 1000)
    assert "test_explain_error.py" in found.place
    assert "np.zeros((10_000_000, 1000, 1000))" in found.place


def test_the_cause_of_an_exception_is_read_too():
    def load():
        try:
            np.zeros((10_000_000, 1000, 1000))
        except MemoryError as inner:
            raise RuntimeError("the data could not be loaded") from inner

    with pytest.raises(RuntimeError) as caught:
        load()
    assert legroom.explain(caught.value).cause == "host_ram_dataset"


def test_an_exception_that_says_nothing_and_one_that_cannot_speak():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    assert legroom.explain(Mute()).cause == "unknown"
    assert legroom.explain(KeyError("x")).cause == "unknown"


def test_the_room_can_be_called_whoever_imported_it_first():
    code = "import legroom.explain.diagnose, legroom; print(legroom.explain('Killed').cause)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "host_ram_other"


LAYER = """
import keras, tensorflow as tf, legroom
class Wide(keras.layers.Layer):
    def call(self, x):
        return tf.zeros([64, 4000, 4000]) + tf.reduce_sum(x)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="first"), Wide(name="the_wide_one")])
"""
CAUGHT = """
try:
    model(tf.zeros([64, 4]))
except Exception as error:
    found = legroom.explain(error)
print(found.cause, found.layer, found.tensor_shape, found.failed_bytes, found.place)
"""


@pytest.mark.tensorflow
def test_the_layer_of_a_real_eager_error(tmp_path):
    code = LAYER + CAUGHT
    code = code.replace(
        "model = keras.Sequential", "Wide.compute_output_shape = lambda self, shape: shape\nmodel = keras.Sequential"
    )
    (tmp_path / "train.py").write_text(code)
    limits = {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "1000"}
    done = subprocess.run(
        [sys.executable, "train.py"], capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ | limits
    )
    assert done.stdout.startswith("batch_or_activations the_wide_one (64, 4000, 4000) 4096000000"), (
        done.stdout + done.stderr[-2000:]
    )
    assert "tf.zeros([64, 4000, 4000])" in done.stdout
