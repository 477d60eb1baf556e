"""How many made-up samples a trial takes, and where they are cut: a few, slices of odd sizes too, and many, as thresholds on a batch's size lie above a few."""

from dataclasses import dataclass
from typing import Any

from legroom.changes.made_up import CUTS, LENGTH, ROWS

Place = tuple[int, int]

MANY = 96  # where the batch's size is not known
LEAST = 12  # of what is called many
SMALL = 5  # the last slice of many
NUMBERS = 2**21  # at most in what goes into a trial of many and comes out of it; twice that where they are the least
SECONDS = 0.5  # which a trial of many may take, by how long one of few took
LONG = 2.0  # a trial of few that takes so long is not made of many


@dataclass(frozen=True)
class Cutting:
    """So many rows, and the slices of them."""

    rows: int
    cuts: tuple[Place, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        return ((0, self.rows), *self.cuts)

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple((stop - start) / self.rows for start, stop in self.cuts)


FEW = Cutting(ROWS, CUTS)
ODD = Cutting(ROWS, ((0, 3), (3, 6)))  # what pairs neighbours, or counts every other sample, sees it


def cut_many(rows: int, size: int | None = None, *, even: bool = False) -> Cutting:
    """The first slice of this size, the last a small one, so that no threshold above a few and up to all rows lies beside all of them. Of odd sizes, or of
    even ones where those of the step all are."""
    rows -= rows % 2 if even else 0
    small = SMALL - 1 if even else SMALL
    first = size if size is not None and size < rows - small else 0
    stops = sorted({first, rows - small, rows} - {0})
    return Cutting(rows, tuple(zip([0, *stops], stops, strict=False)))


def rows_for(numbers: int, seconds: float, batch: int | None = None) -> int:
    """How many samples of so many numbers each are tried, where a trial of few took so long; 0 where it would take too long, or too much memory."""
    if seconds > LONG or numbers * LEAST > 2 * NUMBERS:
        return 0
    room = min(NUMBERS // max(numbers, 1), int(ROWS * SECONDS / max(seconds, 1e-6)))
    rows = min(MANY if batch is None else batch, max(room, LEAST))
    return rows if rows > ROWS else 0


def numbers_each(*trees: Any) -> int:
    """How many numbers a sample has in these tensors."""
    import keras

    found = 0
    for leaf in keras.tree.flatten(trees):
        size = 1
        for length in () if leaf is None else leaf.shape[1:]:
            size *= LENGTH if length is None else int(length)
        found += 0 if leaf is None else size
    return found
