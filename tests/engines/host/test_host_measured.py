"""The prediction against real processes. bench/host.py has the pipelines and the tolerance: 15 % or 100 MB."""

import pathlib
import runpy

import pytest

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not pathlib.Path("/proc/self/clear_refs").exists(), reason="Linux"),
]
BENCH = runpy.run_path(str(pathlib.Path(__file__).parents[3] / "bench" / "host.py"))
QUICK = ("from_tensor_slices(numpy 300 MB).batch(32)", "batch(8).shuffle(60)", "fit(numpy float32 300 MB)")
OTHERS = tuple(name for name in (*BENCH["DATASETS"], *BENCH["FITS"]) if name not in QUICK)


def check(name):
    result = BENCH["measure_named"](name)
    assert BENCH["is_right"](result), result
    assert result["low"] <= result["measured"] * 1.15


@pytest.mark.parametrize("name", QUICK)
def test_quick_pipelines_grow_as_predicted(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_pipelines_grow_as_predicted(name):
    check(name)
