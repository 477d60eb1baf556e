"""The numbers that a training step compares its data with, heard while it is tried out, and rows that have them here and there.

A loss that leaves samples out knows them by such a number: a padding id, a threshold. Steps are tried out eagerly, also those
that are graphs, so that a number of the code's is a small tensor that no operation has computed.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from legroom.changes.hearing import hearing

EQUAL = frozenset(("Equal", "NotEqual", "ApproximateEqual"))
ORDERED = frozenset(("Less", "LessEqual", "Greater", "GreaterEqual", "Maximum", "Minimum", "ClipByValue"))
OFFSET = frozenset(("Sub",))  # compared with zero afterwards: tf.abs(y - 3) < 0.5
MOST = 24  # marks that are tried
MOST_COUNTS = 6  # of them, for counters
LOWER, UPPER = (0, 1, 2), (4, 5)  # the rows of the two slices that get them
AT_ONCE = len(LOWER) + len(UPPER)


class Numbers:
    """Hears every operation of a trial."""

    def __init__(self, batch: Sequence[Any]) -> None:
        self.batch = {id(tensor): tensor for tensor in batch}
        self.computed: dict[int, Any] = {}  # what is small, and no number of the code's
        self.handed: dict[int, tuple[Any, tuple[float, ...]]] = {}  # what is made of one
        self.equal: dict[float, None] = {}
        self.ordered: dict[float, None] = {}
        self.offset: dict[float, None] = {}
        self.single: dict[float, None] = {}  # what single numbers are compared with: a counter, perhaps

    def heard(self, op: str | bytes, inputs: Any, _: Any, outputs: Any, *__: Any, **about: Any) -> None:
        op, graph = op.decode() if isinstance(op, bytes) else op, about.get("graph")
        found = self.equal if op in EQUAL else self.ordered if op in ORDERED else self.offset if op in OFFSET else None
        if found is not None:
            numbers = [self.of(tensor, graph) for tensor in inputs]
            if all(tensor.shape.rank == 0 for tensor in inputs):
                self.single.update(dict.fromkeys(number for ours in numbers for number in ours))
            if any(not ours and tensor.shape.rank != 0 for ours, tensor in zip(numbers, inputs, strict=True)):
                found.update(dict.fromkeys(number for ours in numbers for number in ours))
        if graph is None:
            self.remember(op, inputs, outputs)

    def of(self, tensor: Any, graph: Any) -> tuple[float, ...]:
        """What this tensor holds, if it is a number of the code's, or a few of them."""
        import tensorflow as tf

        from legroom.changes.compared import SMALL, numbers_in

        known = self.handed.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        if not tensor.dtype.is_numpy_compatible or not small(tensor, SMALL):
            return ()
        if graph is not None:
            value = tf.get_static_value(tensor)
            return () if value is None else tuple(numbers_in(value))
        computed = self.computed.get(id(tensor))
        if id(tensor) in self.batch or (computed is not None and computed() is tensor):
            return ()
        return tuple(numbers_in(tensor.numpy()))

    def remember(self, op: str, inputs: Any, outputs: Any) -> None:
        from legroom.changes.compared import HANDED_ON, SMALL

        if op == "ReadVariableOp" and outputs[0].shape.rank == 0:  # a number that the user keeps in a variable
            return
        if op in HANDED_ON and op != "ReadVariableOp" and len(outputs) == 1:
            numbers = self.of(inputs[1 if op == "Fill" else 0], None)
            if numbers:
                signed = tuple(-number for number in numbers) if op == "Neg" else numbers
                self.handed[id(outputs[0])] = (weakref.ref(outputs[0]), signed)
                return
        for tensor in outputs:
            if small(tensor, SMALL):
                self.computed[id(tensor)] = weakref.ref(tensor)


def small(tensor: Any, most: int) -> bool:
    size = tensor.shape.num_elements() if tensor.shape.rank is not None else None
    return size is not None and size <= most


@contextmanager
def comparing(numbers: Numbers) -> Iterator[None]:
    """Operations of this thread are heard meanwhile."""
    try:
        with hearing(numbers.heard):
            yield
    finally:
        numbers.batch, numbers.computed, numbers.handed = {}, {}, {}


def marks_of(heard: Sequence[Numbers]) -> list[float]:
    """What is to be tried: numbers that something must be equal to, then thresholds, then what lies about these."""
    from legroom.changes.compared import marks_around

    def each(name: str) -> dict[float, None]:
        return {number: None for numbers in heard for number in getattr(numbers, name)}

    ordered = tuple(each("ordered"))
    marks = (*each("equal"), *ordered, *each("offset"), *marks_around(ordered))
    return list(dict.fromkeys(marks))


def counts_of(heard: Sequence[Numbers]) -> list[int]:
    """On whichever side of what a counter may be compared with something begins or ends."""
    each = [int(one) for one in singles_of(heard) if float(one).is_integer() and one > 0][:MOST_COUNTS]
    return list(dict.fromkeys(one for number in each for one in (number, number + 1)))


def singles_of(heard: Sequence[Numbers]) -> list[float]:
    """All that single numbers are compared with."""
    return list(dict.fromkeys(number for numbers in heard for number in numbers.single))


def sets_of(marks: Sequence[float]) -> list[list[float]]:
    """As many at once as there are rows for them."""
    return [list(marks[start : start + AT_ONCE]) for start in range(0, len(marks), AT_ONCE)]


def marked(rows: Sequence[Any], marks: Sequence[float], places: Sequence[int]) -> list[Any] | None:
    """These rows with the marks in some of them; None where no array can hold any.

    One entry of a row stays as it is: a loss may be a mean over the entries of a row.
    """
    import numpy as np

    made = [np.array(values) for values in rows]
    changed = False
    for place in places:
        values = made[place]
        for row, mark in placed(marks).items():
            if not fits(values, mark):
                continue
            changed = True
            if values[row].size > 1:
                kept = np.unravel_index(values[row].size - 1, values[row].shape)
                before = values[row][kept]
                values[row] = mark
                values[row][kept] = before
            else:
                values[row] = mark
    return made if changed else None


def placed(marks: Sequence[float]) -> dict[int, float]:
    """A mark for each of some rows: the smaller ones in the first slice, the largest in the second. Whichever of them, or of those
    above or below a number, a loss leaves out, it does not leave out the same share of both slices."""
    ascending = sorted(marks)
    upper = ascending[-2:] if len(marks) == AT_ONCE else ascending[-1:] * 2 if len(marks) > 1 else []
    lower = ascending[: min(len(LOWER), len(marks) - 1)] if upper else ascending
    return {**dict(zip(LOWER, lower, strict=False)), **dict(zip(UPPER, upper, strict=False))}


def fits(values: Any, mark: float) -> bool:
    import numpy as np

    if values.dtype.kind == "f":
        return True
    limits = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
    return limits is not None and mark.is_integer() and bool(limits.min <= mark <= limits.max)
