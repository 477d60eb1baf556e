"""A HostEstimate: what a training process will take of the machine's RAM, and whether that fits the limit that holds."""

from dataclasses import dataclass


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
