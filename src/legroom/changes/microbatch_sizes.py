"""How a loss falls into slices of other sizes than the few made-up samples have: of odd ones, and of many."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from legroom.capture.frames import first_line
from legroom.changes.cutting import ODD, cut_many, rows_for
from legroom.changes.microbatch_kinds import Call, Kind, all_kinds_or_none, kinds_in_slices
from legroom.engines.out_of_memory import is_oom
from legroom.errors import InputError, LegroomError

Kinds = list[set[Kind] | None]
ANY_SIZE = "Let it take batches of any size, or plan with something other than micro-batches."


def kinds_in_other_sizes(
    what: str, call: Call, made: Callable[[int], Any], numbers: int, tolerance: float
) -> Iterator[Kinds]:
    """Of what `made` makes, so many rows of it with so many numbers each. What it raises on odd numbers of samples is a reason not to cut the batch."""
    few = made(ODD.rows)
    try:
        yield kinds_in_slices(call, few, tolerance, ODD)
    except LegroomError:
        raise
    except Exception as error:
        if is_oom(error):
            return
        raise InputError(
            f"The {what} cannot be computed in slices of the batch: on an odd number of samples it raises {first_line(error)}",
            ANY_SIZE,
        ) from error
    began = time.perf_counter()
    kinds_in_slices(call, few, tolerance, ODD)  # what takes long the first time is compiled then
    rows = rows_for(numbers, time.perf_counter() - began)
    many = made_or_none(made, rows) if rows else None
    found = None if many is None else all_kinds_or_none(call, many, tolerance, cut_many(rows))
    if found is not None:
        yield found


def made_or_none(made: Callable[[int], Any], rows: int) -> Any:
    """None where a model cannot be called on so many."""
    try:
        return made(rows)
    except Exception:  # noqa: BLE001 - the user's own code
        return None


def as_array(tensor: Any) -> Any:
    import keras

    return keras.ops.convert_to_numpy(tensor)


def content_of(tensor: Any) -> bytes:
    """By which slices of one size are told apart; nothing while it is only traced, for the slice of that size that was the first."""
    try:
        array = as_array(tensor)
        return str(array.tolist()).encode() if array.dtype.kind == "O" else bytes(array.tobytes())
    except Exception:  # noqa: BLE001 - of either framework
        return b""
