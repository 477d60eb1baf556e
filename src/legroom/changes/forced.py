"""Comparisons of samples that come out otherwise: which samples a step leaves out is decided here, not by the data it is tried out on.

A loss that leaves samples out does it by a truth for each of them. Whatever it compares them with, a number that it computes or one that no made-up sample
has, the truths are made to be some for these samples and others for those, the same for a sample in the batch and in its slice. What is a mean or a sum over
samples stays one.

Private names used, tested with TensorFlow 2.21.0: `EagerTensor._numpy_internal` gives the memory of a tensor on the CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from legroom.changes.made_up import CUTS, ROWS

PATTERNS = 2
SHARES = (0.2, 0.7, 0.1, 0.3, 0.9, 0.6)  # of a sample's truths that are true; the slices must not have as many
ALONE = (True, False, False, False, False, True)  # where there is one for each sample
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Forced:
    """Truths for the samples of one trial, from `start` to `stop` of all; of comparisons that have a row for each sample only."""

    pattern: int
    rows: tuple[int, int]
    which: frozenset[int]  # by their place in the order in which they are made

    def put(self, number: int, tensor: Any) -> None:
        """Written into the tensor's own memory, since eager operations cannot be answered in another way."""
        if number not in self.which:
            return
        tensor._numpy_internal()[...] = self.truths(number, tuple(tensor.shape))

    def truths(self, number: int, shape: Shape) -> Any:
        start, stop = self.rows
        each = prod(shape) // (stop - start)
        return truths_of(self.pattern, number, each)[start:stop].reshape(shape)


def truths_of(pattern: int, number: int, each: int) -> Any:
    """A row of so many truths for every sample. In each slice, as in the batch, some are true and some are not."""
    import numpy as np

    turned = bool(pattern % 2)
    if each == 1:
        return np.array(ALONE)[:, None] != turned
    drawn = np.random.default_rng([pattern, number]).random((ROWS, each)) < np.array(SHARES)[:, None]
    for start, _ in CUTS:
        drawn[start, 0], drawn[start + 1, 0] = True, False
    return drawn != turned


def with_a_row_each(whole: Sequence[Shape], parts: Sequence[tuple[int, Sequence[Shape]]]) -> frozenset[int]:
    """Which comparisons have as many rows as there are samples, or some for each, in the batch and in slices of so many samples alike."""
    if any(len(shapes) != len(whole) for _, shapes in parts):
        return frozenset()
    return frozenset(
        number
        for number, shape in enumerate(whole)
        if shape
        and shape[0] % ROWS == 0
        and all(
            shapes[number][1:] == shape[1:] and shapes[number][0] * ROWS == shape[0] * rows for rows, shapes in parts
        )
    )
