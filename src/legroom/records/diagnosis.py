"""A Diagnosis: why memory ran out, as a log or an exception tells it, and what to do about it."""

from dataclasses import dataclass
from typing import Any, Literal

CauseName = Literal[
    "tensor_too_large",
    "batch_or_activations",
    "weights_or_optimizer_state",
    "fragmentation",
    "leak_or_growth",
    "gpu_shared_or_preallocated",
    "host_ram_dataset",
    "host_ram_other",
    "graph_constant_too_large",
    "workspace_or_autotune",
    "retracing",
    "cudnn_init_memory",
    "not_an_error",
    "unknown",
]
CAUSES: tuple[CauseName, ...] = CauseName.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that a line of a log says, e.g. `Fact("failed_bytes", 411041792, 27, "…trying to allocate 392.00MiB…")`."""

    name: str
    value: Any
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line of the log that speaks for a cause; lines count from one, and 0 is what no line says."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason with its probability, what it rests on, and the arithmetic behind it in words."""

    cause: CauseName
    probability: float
    evidence: tuple[Evidence, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do, the line of code or the command that does it, and what it is predicted to save."""

    title: str
    why: str
    how: str
    saves_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """An allocator's memory when it ran out: what is held, by size (size, count), and the holes between, largest first."""

    limit_bytes: int | None = None
    in_use_bytes: int | None = None
    reserved_bytes: int | None = None
    held: tuple[tuple[int, int], ...] = ()
    holes: tuple[int, ...] = ()

    @property
    def free_bytes(self) -> int | None:
        if self.limit_bytes is None or self.in_use_bytes is None:
            return None
        return max(0, self.limit_bytes - self.in_use_bytes)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer of `legroom.explain`. None is what the text does not say; `place` is the line of the user's code."""

    cause: CauseName
    causes: tuple[Cause, ...] = ()
    failed_bytes: int | None = None
    device: str | None = None
    allocator: str | None = None
    tensor_shape: tuple[int, ...] | None = None
    dtype: str | None = None
    op: str | None = None
    layer: str | None = None
    limit_bytes: int | None = None
    in_use_bytes: int | None = None
    free_bytes: int | None = None
    largest_free_bytes: int | None = None
    advice: tuple[Advice, ...] = ()
    pool: Pool | None = None
    place: str | None = None
    incidents: int = 0

    @property
    def why(self) -> str:
        return self.causes[0].why if self.causes else ""
