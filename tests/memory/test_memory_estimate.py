"""From a Program to an Estimate."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from made_up_programs import make_program, programs

from legroom.memory.estimate import Bounds, Target, assemble
from legroom.records.program import CATEGORIES, Buffer, Instruction
from legroom.records.step import Step

STEP = Step("jax", "0.10.2", "3.15.1", "train.py", "xla", "", 8, (), resident_bytes=5, notes=("from the step",))
TARGET = Target("t4", 1000, "xla", "0.10.2")
BOUNDS = Bounds(10, 30)


@given(programs, st.integers(0, 100))
def test_parts_sum_to_the_peak_exactly(program, resident):
    estimate = assemble(replace(STEP, resident_bytes=resident), program, TARGET, BOUNDS)
    assert estimate.peak_bytes == program.total_bytes + resident
    assert sum(estimate.breakdown.values()) == estimate.peak_bytes
    assert sum(layer.peak_bytes for layer in estimate.layers) == estimate.peak_bytes
    assert (
        max(point.held_bytes for point in estimate.curve) == program.total_bytes - estimate.breakdown["fragmentation"]
    )


def test_breakdown_names_every_category():
    estimate = assemble(STEP, make_program([]), TARGET, BOUNDS)
    assert list(estimate.breakdown) == [*CATEGORIES, "fragmentation", "resident"]


def test_layers_are_sorted_and_what_nobody_owns_is_other():
    parts = [
        Buffer("a", 0, 0, 3, 0, 0, "activations", "small"),
        Buffer("b", 0, 3, 9, 0, 0, "weights", "large"),
        Buffer("c", 1, 0, 12, 0, 0, "inputs"),
    ]
    estimate = assemble(STEP, make_program(parts), TARGET, BOUNDS)
    assert [(layer.name, layer.peak_bytes) for layer in estimate.layers] == [
        ("(other)", 17),
        ("large", 9),
        ("small", 3),
    ]
    assert estimate.breakdown["fragmentation"] == 0
    assert estimate.breakdown["resident"] == 5


def test_what_is_passed_through():
    program = replace(make_program([]), schedule=(Instruction("i0", "dot", flops=7, moved_bytes=9),))
    estimate = assemble(STEP, program, TARGET, BOUNDS, seconds=1.5, notes=("from the engine",))
    assert (estimate.low_bytes, estimate.high_bytes, estimate.usable_bytes) == (10, 30, 1000)
    assert (estimate.gpu, estimate.engine, estimate.engine_version) == ("t4", "xla", "0.10.2")
    assert (estimate.flops, estimate.moved_bytes, estimate.seconds) == (7, 9, 1.5)
    assert estimate.notes == ("from the step", "from the engine")
    assert estimate.fits
