"""How far the compiled total can be from what the step really takes on the card (docs/accuracy.md)."""

from legroom.engines.xla.releases import Release
from legroom.memory.estimate import Bounds
from legroom.records import Program, Step
from legroom.units import MIB


def bounds_of(step: Step, program: Program, release: Release) -> Bounds:
    """The range in which the peak lies."""
    peak = program.total_bytes + step.resident_bytes
    return Bounds(low_bytes=int(peak * 0.97), high_bytes=int(peak * 1.1) + 32 * MIB)
