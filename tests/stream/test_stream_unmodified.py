"""Arrays given to `fit` as ever, without the copies: the same weights, bit for bit, in less memory."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

WORKER = pathlib.Path(__file__).parent / "unmodified_worker.py"


def run(backend, how, dtype, megabytes=64):
    env = os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(WORKER), how, dtype, str(megabytes)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.tensorflow
def test_the_same_weights_without_the_copies():
    plain, streamed = run("tensorflow", "plain", "float32"), run("tensorflow", "installed", "float32")
    assert streamed["weights"] == plain["weights"]
    assert streamed["predicted"] == plain["predicted"]
    assert plain["grown"] - streamed["grown"] >= 1.8 * plain["array"]
    assert streamed["left"] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "float16"])
@pytest.mark.parametrize("split", ["", " split"])
def test_every_dtype(backend, dtype, split):
    plain, streamed = run(backend, "plain" + split, dtype, 32), run(backend, "fit" + split, dtype, 32)
    assert streamed["weights"] == plain["weights"]
    assert streamed["grown"] <= plain["grown"] + 8 * 2**20


@pytest.mark.jax
def test_on_jax_float64_is_cast_row_by_row():
    plain, streamed = run("jax", "plain split", "float64", 96), run("jax", "fit split", "float64", 96)
    assert streamed["weights"] == plain["weights"]
    assert plain["grown"] - streamed["grown"] >= 0.3 * plain["array"]
