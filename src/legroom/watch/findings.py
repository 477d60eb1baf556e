"""What a watch found, and how it is told."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from legroom.units import format_bytes
from legroom.watch.evidence import Cause
from legroom.watch.growth import Growth

Memory = Literal["device", "host"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory after a step; None where nobody counts. `peak_bytes` is the step's own on TensorFlow, the run's on JAX."""

    step: int = 0
    in_use_bytes: int | None = None
    peak_bytes: int | None = None
    host_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """Memory that grows, how fast, and why."""

    step: int
    memory: Memory
    growth: Growth
    cause: Cause
    to_come_bytes: int | None = None

    @property
    def is_leak(self) -> bool:
        return self.cause.kind != "filling"


def finding_text(found: Finding) -> str:
    """One paragraph for the terminal."""
    growth, where = found.growth, "The device's memory" if found.memory == "device" else "The host's memory"
    text = (
        f"legroom: {where} grows by {rate(growth.slope_bytes)} a step (99%: {rate(growth.low_bytes)} to "
        f"{rate(growth.high_bytes)}; over {growth.steps} steps, at step {found.step})"
    )
    if not found.is_leak:
        return f"{text}, and this is no leak: {found.cause.text}"
    if found.to_come_bytes is not None:
        text += f", {format_bytes(found.to_come_bytes)} more by the end"
    return f"{text}: {found.cause.text} {found.cause.advice}".rstrip()


def rate(size_bytes: float) -> str:
    return format_bytes(round(size_bytes))


def finding_to_json(found: Finding) -> dict[str, Any]:
    kind = "leak" if found.is_leak else "filling"
    return {"event": kind, **asdict(found), "text": finding_text(found)}
