"""Actions as a user would say them."""

import pytest

from legroom.plans.search import described
from legroom.records.plan import Action
from legroom.report.plan import action_text

FLAG = "--xla_gpu_memory_limit_slop_factor=9"
HELD = Action("xla_memory", (("limit_bytes", 9 * 2**30), ("percent", 9), ("flag", FLAG)))


@pytest.mark.parametrize(
    ("action", "long", "short"),
    [
        (Action("dropout"), "dropout masks drawn again", "dropout without masks"),
        (Action("host_data"), "the data kept in RAM", "arrays kept in RAM"),
        (Action("compile", (("jit_compile", True),)), "the step compiled by XLA", "jit_compile=True"),
        (HELD, f"XLA held to 9.0 GiB of temporaries (XLA_FLAGS={FLAG})", "XLA held to 9.0 GiB"),
        (Action("optimizer", (("name", "Lion"),)), "the optimizer Lion", "optimizer Lion"),
        (Action("mixed_precision", (("policy", "mixed_float16"),)), "mixed_float16", "mixed_precision mixed_float16"),
    ],
)
def test_each_action_reads_well(action, long, short):
    assert action_text(action) == long
    assert described(action) == short
