"""What the op-by-op engine adds to a Program: the bounds it found, and where memory would run out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """An allocation for which there was no room: who asked, for what, and what was free. Torn: enough was, in pieces."""

    asked_by: str
    asked_bytes: int
    free_bytes: int
    largest_free_bytes: int
    is_fragmentation: bool
