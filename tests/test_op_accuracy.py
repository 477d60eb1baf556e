"""Op-by-op predictions against the real allocator on this CPU and against a real H200's rows: a sample always, all in `make test-full`."""

import pathlib
import statistics
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "bench"))
import op_accuracy

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(5400)]


def check_cpu(rows, median, most, share):
    errors = [abs(row["error"]) for row in rows]
    assert statistics.median(errors) <= median
    assert sum(error <= most for error in errors) >= share * len(errors), [(r["case"], r["error"]) for r in rows]
    assert [row["case"] for row in rows if not row["covered"]] == []


def test_a_sample_under_the_real_allocator_of_this_cpu():
    check_cpu(op_accuracy.compare_cpu(list(op_accuracy.SAMPLE)), 0.06, 0.12, 1.0)


@pytest.mark.slow
def test_all_models_and_loops_under_the_real_allocator_of_this_cpu():
    check_cpu(op_accuracy.compare_cpu(list(op_accuracy.CPU_CASES)), 0.03, 0.08, 0.9)


@pytest.mark.slow
def test_what_fits_under_a_limit_near_the_peak():
    agreed, _, of = op_accuracy.compare_fits(list(op_accuracy.FITS)).split()[:3]
    assert int(agreed) >= 0.9 * int(of)


def check_gpu(rows):
    assert statistics.median(abs(row["error"]) for row in rows) <= 0.08
    for row in rows:
        assert abs(row["error"]) <= 0.2, row
        assert row["high"] >= row["most"], row
        assert row["high"] <= 1.25 * row["most"], row


def test_a_sample_of_a_real_gpus_rows():
    check_gpu(op_accuracy.compare_gpu(["mlp", "seed3"], "shared"))


@pytest.mark.slow
def test_all_shared_rows_of_a_real_gpu():
    check_gpu(op_accuracy.compare_gpu([], "shared"))
