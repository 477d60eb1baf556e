"""How a value falls into slices when the numbers that it is computed with are others than they are now."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from legroom.changes.cutting import ODD, Cutting
from legroom.changes.later_numbers import Numbers, moved, numbers_read
from legroom.changes.made_up import ROWS, rows_of
from legroom.changes.microbatch_kinds import TOLERANCE, Call, Kind, all_kinds_or_none, eagerly, kinds_when_forced

Kinds = list[set[Kind] | None]
TIMES = 8  # as many rows, where there are too few
LARGE = Cutting(TIMES * ROWS, ((0, 2 * ROWS + 4), (2 * ROWS + 4, TIMES * ROWS)))


@dataclass(frozen=True)
class Owners:
    """What computes the value, losses or layers; whether it is asked anew at every `eager` step; how exactly it is compared; `fresh` is called whenever numbers have changed."""

    each: Sequence[Any]
    eager: bool
    tolerance: float = TOLERANCE
    fresh: Callable[[], Any] = list


def kinds_later(call: Call, arrays: Any, owners: Owners) -> Iterator[tuple[list[str], Kinds]]:
    """What `call` gives, in slices, with other numbers, which are named, several times; nothing where it computes with none that could be others."""

    def at_stage(stage: int) -> tuple[list[str], list[Kinds]]:
        with moved(numbers, stage) as names:
            owners.fresh()
            usual = all_kinds_or_none(call, arrays, owners.tolerance)
            found = [] if usual is None else [usual, *kinds_when_forced(call, arrays, owners.tolerance)]
            odd = None if usual is None else all_kinds_or_none(call, arrays, owners.tolerance, ODD)
            if usual is None or odd is None:  # it may raise on so few
                odd = all_kinds_or_none(call, repeated(arrays), owners.tolerance, LARGE)
            found += [] if odd is None else [odd]  # half of six may by chance be the halves of their slices
        owners.fresh()
        return names, found

    def read() -> Numbers:
        return numbers_read(owners.each, call, rows_of(arrays, 0, None), eager=owners.eager)

    numbers = eagerly(read)
    for stage in range(numbers.stages):
        names, found = eagerly(lambda: at_stage(stage))  # noqa: B023
        yield from ((names, kinds) for kinds in found)


def repeated(arrays: Any) -> Any:
    """The same rows several times over, each time a little larger where they are floating point numbers."""
    import keras
    import numpy as np

    def one(array: Any) -> Any:
        if array is None:
            return None
        factors = [array.dtype.type(1 + 0.1 * time) if array.dtype.kind == "f" else None for time in range(TIMES)]
        return np.concatenate([array if factor is None else array * factor for factor in factors])

    return keras.tree.map_structure(one, arrays)
