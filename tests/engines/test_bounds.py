"""Bounds, on made-up programs: they hold the peak, and are never too wide to be of use."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from legroom.engines.xla.bounds import bounds_around, left_by_tuning, pool_bounds, share_of
from legroom.engines.xla.releases import Release
from legroom.gpus import find
from legroom.records import Allocation, Estimate, Instruction, Program, Step, Tensor
from legroom.units import MIB


def made_up(framework, total, weights, opcode, resident=0):
    parameters = (Tensor("w", (weights,), "float32", "weight"),)
    step = Step(framework, "", "", "", "xla", "", 1, parameters, resident_bytes=resident)
    return step, Program((Instruction("i", opcode),), (Allocation(0, total, "temporary"),), (), total)


CONVOLVES, MULTIPLIES = "__cudnn$convForward", "__cublas$gemm"
OURS, OTHER = Release("0.10.2", True), Release("0.9.0", False)


def share(framework="jax", opcode=MULTIPLIES, release=OURS, card="h200"):
    return share_of(*made_up(framework, 10**10, 0, opcode), release, find(card))


@given(
    peak=st.integers(1, 2**40), framework=st.sampled_from(["tensorflow", "jax"]), release=st.sampled_from([OURS, OTHER]),
    opcode=st.sampled_from(["add", "convolution", CONVOLVES, "convert"]), card=st.sampled_from(["t4", "h200"]),
)  # fmt: skip
def test_the_peak_lies_between_and_the_range_is_of_use(peak, framework, opcode, release, card):
    bounds = bounds_around(peak, share(framework, opcode, release, card))
    assert 0 <= bounds.low_bytes <= peak <= bounds.high_bytes <= 1.12 * peak + 64 * MIB + 1


def test_another_release_than_the_users_is_less_certain():
    assert share(release=OTHER) > share()


def test_convolutions_before_ampere_are_less_certain():
    assert share(opcode=CONVOLVES, card="t4") > share(opcode=CONVOLVES, card="a10")


def test_the_card_that_was_measured_is_more_certain_on_tensorflow():
    assert share("tensorflow", CONVOLVES) < share("tensorflow", CONVOLVES, card="a10")
    assert share("tensorflow") < share("jax")


@given(total=st.integers(1, 2**40), beside=st.integers(0, 2**28), more=st.integers(0, 2**28))
def test_a_pool_that_grows_is_less_certain(total, beside, more):
    fixed, grows = (pool_bounds(total, beside, total + beside + more, growth=growth) for growth in (False, True))
    assert fixed.high_bytes == total + beside + more <= grows.high_bytes <= fixed.high_bytes + 128 * MIB
    assert fixed.low_bytes == grows.low_bytes <= total


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
