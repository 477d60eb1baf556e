"""A step's slices of other sizes than those that it is mostly tried out on: odd ones, and slices of a larger batch, of the real one where it is here."""

import os
import time
from typing import Any, Protocol

from legroom.capture.frames import first_line
from legroom.changes.custom_arguments import Arguments, front_of
from legroom.changes.custom_kinds import Candidates
from legroom.changes.cutting import FEW, MANY, NUMBERS, ODD, SECONDS, Cutting, cut_many, numbers_each, rows_for
from legroom.engines.out_of_memory import is_oom
from legroom.errors import InputError, LegroomError

MOST_BYTES = 2**30
ROUNDS = 2  # of many rows, the second of as many as the first showed that there is time for
ANY_SIZE = "It must take batches of any size: let sizes come from the batch, as tf.shape(x)[0]."


class Prober(Protocol):
    """Who makes the trials."""

    arguments: Arguments
    size: int | None
    even: bool
    cutting: Cutting
    usual: Any
    made_bytes: dict[int, int]

    def compare(self, arrays: list[Any]) -> Candidates | None: ...


def compare_sizes(probe: Prober, found: Candidates) -> Candidates:
    """What is left after them."""
    few, took = None, 0.0
    try:
        few, took = compare_as(probe, FEW if probe.even else ODD)
    except LegroomError:
        raise
    except Exception as error:
        if not is_oom(error):
            raise InputError(
                f"The training step could not be tried out on an odd number of samples: {first_line(error)}", ANY_SIZE
            ) from error
    if few is None:
        return found
    found = found.both(few)
    batch = front_of(probe.arguments.batch[0])
    numbers = numbers_each(probe.arguments.batch)
    most = min(MANY if batch is None else batch, NUMBERS // max(numbers, 1), room_bytes() // bytes_each(probe))
    tried, rows = FEW.rows, min(most, rows_for(numbers, took, batch))
    for _ in range(ROUNDS):
        if rows <= tried:
            break
        try:
            many, longer = compare_as(probe, cut_many(rows, probe.size, even=probe.even))
        except LegroomError:
            raise
        except Exception:  # noqa: BLE001 - the user's own, which may not take so many
            break
        found = found if many is None else found.both(many)
        each = max(longer - took, 1e-6) / (rows - FEW.rows)
        tried, rows = rows, min(most, int(rows + SECONDS / each))
    return found


def bytes_each(probe: Prober) -> int:
    """What each row more makes in a trial, as if nothing of it were let go."""
    few, more = min(probe.made_bytes), FEW.rows
    return max(1, (probe.made_bytes[more] - probe.made_bytes[few]) // (more - few))


def room_bytes() -> int:
    """That a trial of many may take. Where TensorFlow's memory on a CPU has a limit, little of it: eager operations crash there that find none."""
    limit = os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB", "")
    return min(MOST_BYTES, int(limit) * 2**20 // 8 if limit.isdigit() else MOST_BYTES)


def compare_as(probe: Prober, cutting: Cutting) -> tuple[Candidates | None, float]:
    """In these slices, and how long it took."""
    probe.cutting = cutting
    began = time.perf_counter()
    try:
        return probe.compare(probe.usual(rows=cutting.rows)), time.perf_counter() - began
    finally:
        probe.cutting = FEW
