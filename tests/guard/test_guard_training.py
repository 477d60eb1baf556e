"""Training that really runs out of memory, in processes whose TensorFlow has a limit. `bench/guard.py` runs the whole series."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import guard_worker
import pytest

pytestmark = pytest.mark.tensorflow

WORKER = Path(guard_worker.__file__)
SGD, ADAM = 1e-4, 1e-8
DEEP = {"model": "deep", "batch": 32, "steps": 4}
WIDE = {"model": "dense", "optimizer": "adam", "dtype": "float64", "batch": 8, "steps": 4}
RUNS = (  # each group in a process of its own, all at once: most of the time is TensorFlow's waiting before it refuses memory
    {
        "graph": {**DEEP, "mode": "graph", "fills": [[1, 0.55]]},
        "update": {**WIDE, "mode": "graph", "fills": [[2, 0.75]]},
    },
    {
        "loop": {**DEEP, "mode": "loop", "fills": [[1, 0.55]]},
        "loop update": {**WIDE, "mode": "loop", "fills": [[2, 0.75]]},
        "loop eager": {**DEEP, "mode": "loop eager", "fills": [[2, 0.6]]},
    },
    {
        "eager": {**DEEP, "mode": "eager", "fills": [[2, 0.6]]},
        "no room": {**DEEP, "mode": "eager", "batch": 1, "fills": [[2, 0.3]]},
    },
    {
        "normalised": {**DEEP, "model": "norm", "mode": "graph", "fills": [[2, 0.8]]},
        "exhaustive": {
            **WIDE,
            "exhaustive": True,
            "dtype": "float32",
            "steps": 1,
            "apart": 6_000_000,
            "least": 500_000,
        },
    },
)


@pytest.fixture(scope="module")
def answers():
    def ask(cases):
        done = subprocess.run(
            [sys.executable, str(WORKER)],
            input="".join(json.dumps(case) + "\n" for case in cases.values()),
            capture_output=True,
            text=True,
            env=guard_worker.environment(),
            check=False,
        )
        lines = [line.split(" ", 1)[1] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        found = [json.loads(line) for line in lines]
        died = [{"died": done.stderr[-2000:]}] * (len(cases) - len(found))
        return dict(zip(cases, found + died, strict=True))

    with ThreadPoolExecutor(len(RUNS)) as pool:
        return {name: found for group in pool.map(ask, RUNS) for name, found in group.items()}


def check_state(found, tolerance):
    assert "died" not in found, found
    assert found["worst"]["counters"] == 0
    assert max(found["worst"].values()) <= tolerance
    assert found["iterations"] == found["steps"]


@pytest.mark.parametrize("name", ["graph", "eager", "loop", "loop eager"])
def test_a_failed_step_is_taken_again_in_micro_batches(answers, name):
    found = answers[name]
    check_state(found, SGD)
    assert found["ooms"] >= 1
    assert found["way"][0] >= 2
    assert found["gave_up"] is None
    assert found["plain"] == 0  # guarded and not short of memory: bit by bit what Keras does


def test_with_batch_normalisation_layers_are_recomputed(answers):
    found = answers["normalised"]
    check_state(found, SGD)
    assert found["ooms"] >= 1
    assert found["way"] == [1, True]


@pytest.mark.parametrize("name", ["update", "loop update"])
def test_an_update_that_does_not_fit_is_done_with_a_copy_on_the_host_and_is_the_same(answers, name):
    found = answers[name]
    check_state(found, ADAM)
    assert found["careful"] >= 1


def test_without_room_for_one_sample_everything_is_put_back_and_said(answers):
    found = answers["no room"]
    check_state(found, 0.0)
    assert found["steps"] == 2
    assert "ran out of memory" in found["gave_up"]
    assert "it needs more than" in found["gave_up"]


def test_each_step_is_whole_or_none_whatever_memory_it_finds(answers):
    found = answers["exhaustive"]
    assert "died" not in found, found
    assert found["failed"] >= 1
    assert found["wrong"] == []
