"""What the op-by-op engine adds to a Program: the bounds it found, and where memory would run out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """An allocation for which there was no room: who asked, for what, and what was free. Torn: enough was, in pieces.

    `less_bytes`: in a pool that is smaller by that much than the one there is, for the sake of what a simulation does not know.
    """

    asked_by: str
    asked_bytes: int
    free_bytes: int
    largest_free_bytes: int
    is_fragmentation: bool
    less_bytes: int = 0
