"""Puts a Step, its Program and what is known of the target together into an Estimate."""

from dataclasses import dataclass

from legroom.memory.liveness import held_bytes
from legroom.memory.timeline import UNOWNED, find_peak, thin_curve
from legroom.records.estimate import Estimate, LayerShare
from legroom.records.program import Category, Program
from legroom.records.step import Step


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between which the peak really lies."""

    low_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True)
class Target:
    """What the step will run on, and who says what it takes there."""

    gpu: str
    usable_bytes: int
    engine: str
    engine_version: str


def assemble(  # noqa: PLR0913
    step: Step, program: Program, target: Target, bounds: Bounds, *, seconds: float = 0.0, notes: tuple[str, ...] = ()
) -> Estimate:
    """The peak is the compiler's own total and what stays resident beside the program; its parts sum to it exactly."""
    curve = held_bytes(program)
    peak = find_peak(program, curve)
    breakdown: dict[Category | str, int] = {}
    breakdown.update(peak.by_category.items())
    breakdown.update(fragmentation=peak.gap_bytes, resident=step.resident_bytes)
    layers = dict(peak.by_layer)
    layers[UNOWNED] = layers.get(UNOWNED, 0) + peak.gap_bytes + step.resident_bytes
    ranked = sorted(((name, size) for name, size in layers.items() if size), key=lambda item: (-item[1], item[0]))
    return Estimate(
        engine=target.engine,
        engine_version=target.engine_version,
        framework=step.framework,
        framework_version=step.framework_version,
        execution=step.execution,
        gpu=target.gpu,
        batch=step.batch,
        peak_bytes=program.total_bytes + step.resident_bytes,
        low_bytes=bounds.low_bytes,
        high_bytes=bounds.high_bytes,
        program_bytes=program.total_bytes,
        resident_bytes=step.resident_bytes,
        usable_bytes=target.usable_bytes,
        breakdown=breakdown,
        layers=tuple(LayerShare(name, size) for name, size in ranked),
        curve=thin_curve(program, curve),
        flops=program.flops,
        moved_bytes=program.moved_bytes,
        launches=program.launches,
        seconds=seconds,
        notes=step.notes + notes,
    )
