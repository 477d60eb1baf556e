"""Arrays under a hard limit of memory (RLIMIT_DATA) that leaves no room for a copy of them."""

import os
import pathlib
import subprocess
import sys

import pytest

WORKER = pathlib.Path(__file__).parent / "limited_worker.py"
MORE = 128  # MiB: a budget of 64, and what TensorFlow reserves


def run(how, dtype, megabytes):
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(WORKER), how, dtype, str(megabytes), str(MORE)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.tensorflow
def test_arrays_are_trained_on_where_a_copy_has_no_room():
    done = run("streamed", "float32", 200)
    assert done.stdout.strip().endswith("done"), done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_only_when_streamed(dtype):
    assert run("plain", dtype, 300).returncode
    done = run("streamed", dtype, 300)
    assert done.stdout.strip().endswith("done"), done.stderr[-2000:]
