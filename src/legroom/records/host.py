"""What a training process will take of the machine's RAM (HostEstimate), and what would make it fit (HostPlan)."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class HostPart:
    """One thing that is in RAM at the process's fullest moment, with its bounds and the reason for its size."""

    name: str
    low_bytes: int
    size_bytes: int
    high_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class HostEstimate:
    """The host's half of an estimate. The `parts` sum to `peak_bytes`, `low_bytes` and `high_bytes`, exactly."""

    peak_bytes: int
    low_bytes: int
    high_bytes: int
    limit_bytes: int
    limit_reason: str
    parts: tuple[HostPart, ...]
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.high_bytes <= self.limit_bytes


@dataclass(frozen=True, slots=True)
class HostAction:
    """A change that takes RAM off a training, done alone: by Legroom, or by the script's author, in whose hands it is."""

    name: str
    title: str
    how: str
    by: Literal["legroom", "author"]
    peak_bytes: int
    high_bytes: int
    fits: bool


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The host's half of a plan. `limit_bytes` and `fits` are None where the machine that trains is not known."""

    peak_bytes: int
    high_bytes: int
    limit_bytes: int | None
    limit_reason: str
    fits: bool | None
    actions: tuple[HostAction, ...] = ()
