"""An Estimate: what a training step will take of a device, and whether it fits."""

from dataclasses import dataclass

from legroom.records.host import HostEstimate
from legroom.records.program import Category
from legroom.records.simulation import Failure
from legroom.records.step import Execution, Framework

CPU = "this machine's CPU"  # what stands for a card's name where there is none


@dataclass(frozen=True, slots=True)
class LayerShare:
    """What one layer holds at the step's fullest moment: its weights, their optimizer state, its activations and gradients."""

    name: str
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """At one moment of the schedule: what runs, and how much is held."""

    moment: int
    instruction: str
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """The answer of `legroom estimate`. `breakdown` (category → bytes) sums to `peak_bytes`, exactly; so do `layers`.

    `reserved_bytes` and `out_of_memory` are the simulated allocator's: what it took from the device, and what it had no room for.
    `first_step_peak_bytes` is what the first step may take where trying algorithms could leave something behind; None: no more.
    """

    engine: str
    engine_version: str
    framework: Framework
    framework_version: str
    execution: Execution
    gpu: str
    batch: int | None
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    program_bytes: int
    resident_bytes: int
    usable_bytes: int
    breakdown: dict[Category | str, int]
    layers: tuple[LayerShare, ...]
    curve: tuple[CurvePoint, ...] = ()
    first_step_peak_bytes: int | None = None
    max_batch: int | None = None
    reserved_bytes: int | None = None
    out_of_memory: Failure | None = None
    host: HostEstimate | None = None
    flops: int = 0
    moved_bytes: int = 0
    launches: int = 0  # ops or kernels that the step starts
    step_seconds: float | None = (
        None  # that the step takes, where it was simulated with the machine's own kernels' times
    )
    seconds: float = 0.0
    from_cache: bool = False
    notes: tuple[str, ...] = ()

    @property
    def on_cpu(self) -> bool:
        return self.gpu == CPU

    @property
    def need_bytes(self) -> int:
        """What must be there for every step, the first included."""
        return max(self.high_bytes, self.first_step_peak_bytes or 0)

    @property
    def fits(self) -> bool:
        return self.need_bytes <= self.usable_bytes and self.out_of_memory is None
