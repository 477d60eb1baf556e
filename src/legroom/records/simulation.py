"""What the op-by-op engine adds to a Program: the bounds it found, and where memory would run out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """An allocation for which there was no room: who asked, for what, and what was free. Torn: enough was, in pieces.

    `less_bytes`: in a pool that is smaller by that much than the one there is, for the sake of what a simulation does not know. `more_bytes`: if a
    compiled program's temporaries are larger by that much than its compiler said here, as they may be on the card.
    """

    asked_by: str
    asked_bytes: int
    free_bytes: int
    largest_free_bytes: int
    is_fragmentation: bool
    less_bytes: int = 0
    more_bytes: int = 0

    @property
    def is_sure(self) -> bool:
        """Whether it fails as it was simulated, with no allowance for what is not known."""
        return not self.less_bytes and not self.more_bytes
