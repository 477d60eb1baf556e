"""Whether a metric adds to a variable of its own, or puts a number in its place (the largest so far), found out by what it makes of another.

What is added must add up over the slices: one that is added for each batch (a count of batches) is added for each slice.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CLOSE = 1e-3
Counted = list[tuple[str, Any, Any]]  # a metric's name, what its variable held, and what it became


@contextmanager
def moved(variables: list[Any]) -> Iterator[None]:
    """Meanwhile these variables hold something larger."""
    before = [
        (variable, variable.numpy())
        for variable in variables
        if variable.dtype.is_floating or variable.dtype.is_integer
    ]
    try:
        for variable, value in before:
            variable.assign(value + abs(value) + value.dtype.type(3))
        yield
    finally:
        for variable, value in reversed(before):
            variable.assign(value)


def unknown(counted: Counted, known: dict[int, bool]) -> bool:
    """Whether something has changed of which it is not known how."""
    import numpy as np

    return any(number not in known and bool(np.any(held != after)) for number, (_, held, after) in enumerate(counted))


def added(counted: Counted, again: Counted) -> dict[int, bool]:
    """For each variable that changed, whether it was added to: then what it became is as much larger as what it held was."""
    import numpy as np

    found: dict[int, bool] = {}
    for number, ((_, held, after), (_, held_then, after_then)) in enumerate(zip(counted, again, strict=False)):
        if len({one.shape for one in (held, after, held_then, after_then)}) > 1 or after.dtype.kind != "f":
            continue
        changed = (held != after) & np.isfinite(after) & np.isfinite(after_then)
        if changed.any():
            more = (held_then - held)[changed]
            found[number] = bool(np.all(abs((after_then - after)[changed] - more) <= CLOSE * abs(more)))
    return found
