"""Bounds, on made-up programs: they hold the peak, and are never too wide to be of use."""

from hypothesis import given
from hypothesis import strategies as st

from legroom.engines.xla.bounds import bounds_of
from legroom.engines.xla.releases import Release
from legroom.gpus import find
from legroom.records import Allocation, Instruction, Program, Step, Tensor
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
