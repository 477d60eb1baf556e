"""Mutated logs raise nothing and never hang: a sample; bench/explain.py does the hundred thousand."""

import importlib.util
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from legroom.errors import InputError
from legroom.explain.diagnose import explain
from legroom.records.diagnosis import CAUSES

BENCH = Path(__file__).parents[2] / "bench" / "explain.py"


def bench():
    spec = importlib.util.spec_from_file_location("bench_explain", BENCH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_sample_of_mutated_logs():
    slowest, refused, causes = bench().fuzz(400, seed=7)
    assert slowest < 2
    assert sum(causes.values()) + refused == 400


WORDS = st.sampled_from(
    [
        *(
            "OOM when allocating tensor with shape[",
            "1,2",
            "]",
            " and type float",
            "ran out of memory trying to allocate ",
            "9.5GiB",
            "\n",
        ),
        *(
            "Killed",
            "\r",
            "MemoryError: Unable to allocate ",
            "0x",
            "InUse at 7f of size 256 next 1\n",
            "Stats: \n",
            "Limit: 99999999999999999999\n",
        ),
        *(
            "CUDA out of memory. Tried to allocate ",
            "{{node a/b/c}}",
            "Used 1G of 2G hbm",
            "Epoch 3/9\n",
            "anon-rss:12kB",
            "\x1b[0m",
            "Free  at 1 of size 0 next 0\n",
        ),
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(WORDS, st.text(max_size=20)), min_size=1, max_size=40))
def test_any_order_of_their_words(parts):
    try:
        found = explain("".join(parts) + "x")
    except InputError:
        return
    assert found.cause in CAUSES
    assert sum(cause.probability for cause in found.causes) <= 1.05
    for size in (found.failed_bytes, found.limit_bytes, found.free_bytes, found.largest_free_bytes):
        assert size is None or size >= 0
