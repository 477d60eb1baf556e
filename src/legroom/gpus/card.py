"""One GPU, as far as memory and time depend on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from legroom.gpus.limits import LIMITS, Limits

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card: `memory_bytes` is the total that CUDA reports, `nominal_bytes` the size on the box.

    `rates` maps a precision of `PRECISIONS` to its dense peak in FLOP/s; a precision that the card lacks is not in it.
    `memory_source` is `"log"`, `"nominal"` (see catalogue.toml) or `"given"` by the user, and `assumed` names what a
    user's file left out and a similar card of the catalogue stands in for.
    """

    key: str
    name: str
    aliases: tuple[str, ...]
    compute_capability: tuple[int, int]
    memory_bytes: int
    nominal_bytes: int
    memory_source: str
    sm_count: int
    clock_ghz: float
    bandwidth_bytes_per_second: int
    l2_bytes: int
    rates: Mapping[str, float] = field(hash=False)
    assumed: tuple[str, ...] = ()

    @property
    def limits(self) -> Limits:
        """What follows from the compute capability alone."""
        return LIMITS[self.compute_capability]

    @property
    def architecture(self) -> str:
        """Pascal, Volta, Turing, Ampere, Ada, Hopper or Blackwell."""
        return self.limits.architecture

    @property
    def cores_per_sm(self) -> int:
        """FP32 cores in one SM."""
        return self.limits.cores_per_sm
