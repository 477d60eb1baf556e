"""Predictions against a real H200's rows: a sample always, all of them in `make test-full` (the figures of docs/accuracy.md)."""

import pathlib
import statistics
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "bench"))
import accuracy

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(5400)]
MIB = 2**20


def compare(backend, group, models=None):
    rows = [row for row in accuracy.rows() if row["backend"] == backend and row["set"] == group]
    rows = [row for row in rows if models is None or (row["model"], row["policy"]) in models]
    guesses = accuracy.ask(backend, [(row["model"], row["batch"], row["policy"]) for row in rows])
    assert len(guesses) == len(rows)
    return [accuracy.compare(row, guess) for row, guess in zip(rows, guesses, strict=True)]


def check(compared, median, worst, lstm=0.10):
    assert statistics.median(abs(row["error"]) for row in compared) <= median
    for row in compared:
        limit = lstm if row["model"] == "lstm" else worst
        assert abs(row["error"]) <= limit or abs(row["off"]) <= 64 * MIB, row
        assert row["covered"], row
        assert not row["wide"], row


@pytest.mark.jax
def test_a_sample_on_jax():
    check(compare("jax", "shared", [("lstm", "float32"), ("seed3", "mixed_bfloat16"), ("mlp", "float32")]), 0.01, 0.06)


@pytest.mark.tensorflow
def test_a_sample_on_tensorflow():
    check(
        compare("tensorflow", "shared", [("seed3", "mixed_bfloat16"), ("unet", "mixed_bfloat16"), ("mlp", "float32")]),
        0.03,
        0.09,
    )


@pytest.mark.slow
@pytest.mark.jax
def test_all_shared_rows_on_jax():
    check(compare("jax", "shared"), 0.01, 0.06)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_all_shared_rows_on_tensorflow():
    check(compare("tensorflow", "shared"), 0.03, 0.09)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "group"), [("jax", "held out"), ("tensorflow", "held out"), ("jax", "unseen")])
def test_bounds_hold_on_all_other_rows(backend, group):
    for row in compare(backend, group):
        assert row["covered"], row
        assert not row["wide"], row
