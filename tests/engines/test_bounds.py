"""Bounds, on made-up programs: they hold the peak, and are never too wide to be of use."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from legroom.engines.xla.bounds import bounds_of, left_by_tuning
from legroom.engines.xla.releases import Release
from legroom.gpus import find
from legroom.records import Allocation, Estimate, Instruction, Program, Step, Tensor
from legroom.units import MIB


def made_up(framework, total, weights, opcode, resident=0):
    parameters = (Tensor("w", (weights,), "float32", "weight"),)
    step = Step(framework, "", "", "", "xla", "", 1, parameters, resident_bytes=resident)
    return step, Program((Instruction("i", opcode),), (Allocation(0, total, "temporary"),), (), total)


@given(
    framework=st.sampled_from(["tensorflow", "jax"]), total=st.integers(1, 2**40), weights=st.integers(0, 2**30),
    opcode=st.sampled_from(["add", "convolution", "__cudnn$convForward", "convert"]), matches=st.booleans(),
    card=st.sampled_from(["t4", "h200"]),
)  # fmt: skip
def test_the_peak_lies_between_and_the_range_is_of_use(framework, total, weights, opcode, matches, card):
    step, program = made_up(framework, total, weights, opcode)
    bounds = bounds_of(step, program, Release("0.9.0", matches), find(card))
    assert 0 <= bounds.low_bytes <= total <= bounds.high_bytes <= 1.12 * total + 64 * MIB + 1


def test_another_release_than_the_users_is_less_certain():
    exact, near = (
        bounds_of(*made_up("jax", 10**10, 0, "dot"), Release("0.9.0", matches), find("h200"))
        for matches in (True, False)
    )
    assert near.high_bytes > exact.high_bytes
    assert near.low_bytes < exact.low_bytes


def test_convolutions_before_ampere_are_less_certain():
    old, new = (
        bounds_of(*made_up("jax", 10**10, 0, "__cudnn$convForward"), Release("0.10.2", True), find(card))
        for card in ("t4", "a10")
    )
    assert old.high_bytes > new.high_bytes


def test_what_tuning_leaves_behind_counts_where_an_algorithm_could_want_more_than_there_is():
    step, program = made_up("tensorflow", 10**9, 0, "__cudnn$convForward")
    tuned = replace(program, tuned_bytes=10**8)
    assert left_by_tuning(step, tuned, 10**9) == 3 * 10**8
    assert left_by_tuning(step, tuned, 20 * 10**8) is None
    assert left_by_tuning(step, program, 10**9) is None


def test_a_step_fits_when_its_first_one_does():
    plain = Estimate(
        engine="xla", engine_version="", framework="jax", framework_version="", execution="xla", gpu="", batch=1,
        peak_bytes=90, low_bytes=80, high_bytes=95, program_bytes=90, resident_bytes=0, usable_bytes=100, breakdown={}, layers=(),
    )  # fmt: skip
    assert [replace(plain, first_step_peak_bytes=first).fits for first in (None, 100, 101)] == [True, True, False]
    assert replace(plain, first_step_peak_bytes=120).need_bytes == 120
