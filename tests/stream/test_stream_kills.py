"""Killed at random steps and resumed: every sample of every epoch exactly once."""

import collections
import json
import os
import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest

WORKER = pathlib.Path(__file__).parent / "kill_worker.py"
COUNT = 1003


def killed(folder, kills, seed):
    np.save(folder / "x.npy", np.arange(COUNT, dtype=np.int64)[:, None])
    chance = random.Random(seed)
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    for _ in range(kills):
        done = subprocess.run([sys.executable, WORKER, folder, str(chance.randint(1, 6))], env=env, check=False)
        assert done.returncode == -9
    done = subprocess.run([sys.executable, WORKER, folder, "0"], env=env, check=False, capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stderr
    return json.loads((folder / "state.json").read_text())["used"]


def require_once(used):
    seen = {epoch: collections.Counter() for epoch in (0, 1)}
    for epoch, numbers in used:
        seen[epoch].update(numbers)
    for counts in seen.values():
        assert set(counts) == set(range(COUNT))
        assert set(counts.values()) == {1}
    assert [n for _, batch in used[:20] for n in batch] != list(range(320))


def test_three_kills(tmp_path):
    require_once(killed(tmp_path, 3, 0))


@pytest.mark.slow
def test_twenty_kills(tmp_path):
    require_once(killed(tmp_path, 20, 1))
