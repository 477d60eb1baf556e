"""Actions as a user would say them."""

import pytest

from legroom.plans.search import described
from legroom.records.plan import Action, Plan
from legroom.report.plan import action_text, exactness_text, tried_text

FLAG = "--xla_gpu_memory_limit_slop_factor=9"
HELD = Action("xla_memory", (("limit_bytes", 9 * 2**30), ("percent", 9), ("flag", FLAG)))


@pytest.mark.parametrize(
    ("action", "long", "short"),
    [
        (Action("dropout"), "dropout masks drawn again", "dropout without masks"),
        (Action("host_data"), "the data kept in RAM", "arrays kept in RAM"),
        (Action("compile", (("jit_compile", True),)), "the step compiled by XLA", "jit_compile=True"),
        (HELD, f"XLA held to 9.0 GiB of temporaries (XLA_FLAGS={FLAG})", "XLA held to 9.0 GiB"),
        (Action("optimizer", (("kind", "Lion"),)), "the optimizer Lion", "optimizer Lion"),
        (Action("mixed_precision", (("policy", "mixed_float16"),)), "mixed_float16", "mixed_precision mixed_float16"),
    ],
)
def test_each_action_reads_well(action, long, short):
    assert action_text(action) == long
    assert described(action) == short


def test_what_rests_on_trials_is_called_so():
    plan = Plan(
        (Action("microbatch", (("count", 4),)),),
        1,
        1,
        1,
        True,
        1.0,
        tried=("loss 'a'", "layer 'b'", "layer 'c'", "layer 'd'"),
    )
    assert exactness_text(plan) == "exact as far as was tried"
    assert tried_text(plan).startswith("tried: loss 'a', layer 'b', layer 'c' and 1 more, not Keras' own,")


def test_what_is_known_is_called_exact():
    assert exactness_text(Plan((), 1, 1, 1, True, 1.0)) == "exact"
