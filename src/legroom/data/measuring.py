"""What a sample takes, measured on a few of them all over the data."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from legroom.data.buffers import Buffers
from legroom.data.sources.collating import collate
from legroom.data.sources.generators import Serial
from legroom.data.sources.images import spread
from legroom.data.structure import leaves, mapped, rebuilt
from legroom.errors import InputError

RAGGED_MARGIN = 1.5  # the longest of a few samples is rarely the longest of all


@dataclass(frozen=True, slots=True)
class Leaf:
    """The shape (None where it differs between batches) and the dtype of one array of a batch."""

    shape: tuple[int | None, ...]
    dtype: Any


@dataclass(frozen=True, slots=True)
class Element:
    """A sample as it was measured: the structure of its arrays, and its bytes."""

    signature: Any
    sample_bytes: int
    ragged: bool


def measure(source: Any, ragged: bool = False) -> Element:
    """A few samples' common shape; `ragged` says that others may be longer than any of these."""
    if isinstance(source, Serial):
        rows = source.look(4)
        if not rows:
            raise InputError("The generator gives no samples.", "Give one that yields at least one.")
        rows = rows if source.transform is None else [source.transform(row) for row in rows]
        seen = [collate([row], np.array([place]), source.name, Buffers()) for place, row in enumerate(rows)]
    else:
        seen = [source.batch(np.array([index]), Buffers()) for index in spread(source.length)]
    signature, found = merged(seen)
    if ragged:
        signature = mapped(signature, lambda leaf: Leaf((None,) * len(leaf.shape), leaf.dtype))
    ragged = ragged or found
    most = max(sum(bytes_of(array) for _, array in leaves(batch)) for batch in seen)
    loose = ragged or isinstance(source, Serial)
    return Element(signature, int(most * RAGGED_MARGIN) if loose else most, ragged)


def merged(batches: list[Any]) -> tuple[Any, bool]:
    rows = [list(leaves(batch)) for batch in batches]
    found, ragged = [], False
    for number, (path, first) in enumerate(rows[0]):
        arrays = [row[number][1] for row in rows if len(row) == len(rows[0])]
        if len(arrays) < len(rows) or any(array.ndim != first.ndim for array in arrays):
            raise InputError(
                f"Samples differ in how they are made, at {path or 'their top'}.", "Make all of them alike."
            )
        shape = tuple(
            sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*(a.shape[1:] for a in arrays), strict=True)
        )
        ragged = ragged or None in shape or first.dtype == object
        found.append(
            Leaf((None, *shape), first.dtype if first.dtype == object else np.result_type(*{a.dtype for a in arrays}))
        )
    return rebuilt(batches[0], iter(found)), ragged


def bytes_of(array: Any) -> int:
    if array.dtype == object:
        return sum(len(item) + 64 if isinstance(item, str | bytes) else 64 for item in array)
    return int(array.nbytes)
