"""Lowering on JAX, in a process of its own: the backend is chosen once a process."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.jax

CODE = """
import json, sys
import keras, numpy as np
from keras import layers
from legroom.capture.batch import ArraySpec
from legroom.capture.keras_fit import capture_model
from legroom.engines.xla.lower import lower
import jax._src.cudnn.fused_attention_stablehlo as attention

keras.config.set_dtype_policy("mixed_bfloat16")
inputs = keras.Input((64, 128))
x = layers.MultiHeadAttention(4, 64, name="attention")(inputs, inputs)
model = keras.Model(inputs, layers.Dense(2, name="top")(x))
model.compile("adam", "mse")
captured = capture_model(model, (ArraySpec((8, 64, 128), "float32"), ArraySpec((8, 64, 2), "float32")))
kept = attention.check_cudnn_version
new, old = lower(captured, (8, 0)), lower(captured, (7, 5))
print("FOUND " + json.dumps({
    "fused": [b"fmha" in lowered.program for lowered in (new, old)],
    "restored": attention.check_cudnn_version is kept,
    "iterations": int(model.optimizer.iterations.numpy()),
    "resident": new.step.resident_bytes,
    "parameters": [[t.name, list(t.shape), t.role, t.layer] for t in new.step.parameters],
}))
"""


@pytest.fixture(scope="module")
def found():
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=env, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0][6:])


def test_fused_attention_is_taken_where_the_card_has_it(found):
    assert found["fused"] == [True, False]


def test_nothing_stays_patched(found):
    assert found["restored"]


def test_nothing_is_trained(found):
    assert found["iterations"] == 0


def test_the_next_batch_is_resident_beside_the_program(found):
    assert found["resident"] == 4 * (8 * 64 * 128 + 8 * 64 * 2)


def test_every_parameter_has_its_role_and_owner(found):
    rows = {name: (role, layer) for name, _, role, layer in found["parameters"]}
    assert rows["top/kernel"] == ("weight", "top")
    assert rows["attention/query/kernel"] == ("weight", "attention/query")
    assert rows["adam/top_kernel_momentum"] == ("optimizer", "top")
    assert [row[1] for row in found["parameters"] if row[2] == "input"] == [[8, 64, 128], [8, 64, 2]]
