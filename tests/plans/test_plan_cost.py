"""Times by a roofline and by what is started."""

from dataclasses import replace

import pytest
from test_plan_search import GIB, estimate

from legroom.gpus import find
from legroom.plans.cost import KERNEL_SECONDS, OP_SECONDS, seconds, slowdown

H200 = find("h200")
WORK = {"flops": 10**12, "moved_bytes": 10 * GIB}


def step(**counted):
    return replace(estimate(GIB, GIB), engine="xla", **counted)


def test_twice_the_work_takes_twice_as_long():
    twice = {name: 2 * value for name, value in WORK.items()}
    assert slowdown(step(**twice), step(**WORK), H200) == pytest.approx(2)


def test_a_compiled_programs_kernels_add_up():
    assert seconds(step(**WORK, launches=1000), H200) - seconds(step(**WORK), H200) == pytest.approx(
        1000 * KERNEL_SECONDS
    )


def test_op_by_op_the_slower_of_host_and_card_decides():
    busy = replace(step(**WORK), engine="op", launches=1)
    assert seconds(busy, H200) == pytest.approx(seconds(step(**WORK), H200))
    assert seconds(replace(busy, launches=10**6), H200) == pytest.approx(10**6 * OP_SECONDS)


def test_half_precision_is_quicker_where_the_card_has_it():
    assert slowdown(step(flops=10**15), step(flops=10**15), H200, "mixed_bfloat16") == pytest.approx(0.5, rel=0.01)
    assert slowdown(step(flops=10**15), step(flops=10**15), find("p100"), "mixed_bfloat16") == pytest.approx(1)


def test_what_was_simulated_with_the_machines_own_times_is_taken_at_its_word():
    quick, slow = (replace(step(**WORK), engine="op", step_seconds=taken) for taken in (2.0, 3.0))
    assert slowdown(slow, quick, H200) == pytest.approx(1.5)
