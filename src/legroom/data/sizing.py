"""How much is read ahead, and by how many threads: from the budget and the size of a batch as it was measured."""

import os
from dataclasses import dataclass, replace

from legroom.errors import InputError
from legroom.units import MIB, format_bytes

MOST_AHEAD = 16  # batches (or groups of small ones): a reader further ahead than this is not the bottleneck
MOST_THREADS = 8
GROUP_BYTES = 4 * MIB  # smaller batches are read several at a time: asking for one costs more than reading it
MOST_GROUP = 16
MACHINERY_BYTES = 12 * MIB  # threads' stacks, a pipeline's graphs, what allocators keep: up to 12 MiB in twenty epochs
ORDER_BYTES = (
    80  # of a row, while TensorFlow makes Keras' order of all rows: measured, 20 (4,000,000 rows) to 80 (1,000,000)
)
FROM_RAM_AHEAD, FROM_RAM_BYTES = 2, MIB  # groups, and how large one is, where rows are copied from RAM to RAM
IN_USE = 3  # the batch of this step, the one that is handed over, the one that the framework still holds


@dataclass(frozen=True, slots=True)
class Need:
    """What the source was measured to take: a batch as the step gets it, what reading one takes beside it, what is held anyway."""

    sample_bytes: int
    batch_size: int
    reading_bytes: int = 0
    held_bytes: int = 0

    @property
    def batch_bytes(self) -> int:
        return max(1, self.sample_bytes * self.batch_size)


@dataclass(frozen=True, slots=True)
class Sizes:
    """`ahead` and the batches in use are counted in groups of `group` batches."""

    group: int
    threads: int
    ahead: int
    held_bytes: int


def sizes_for(need: Need, budget_bytes: int, threads: int, group_bytes: int = GROUP_BYTES) -> Sizes:
    """The most that is useful and stays within the budget; an InputError where not even one batch at a time does.

    `group_bytes=0` is for batches that are padded to their own length: they are read one by one.
    """
    if need.sample_bytes + need.reading_bytes > budget_bytes:
        raise InputError(
            f"One sample takes {format_bytes(need.sample_bytes + need.reading_bytes)}, and the budget is {format_bytes(budget_bytes)}.",
            "Give a larger `ram`, or store smaller samples.",
        )
    room = budget_bytes - need.held_bytes - min(MACHINERY_BYTES, budget_bytes * 3 // 8)
    per_batch = need.batch_bytes + need.reading_bytes
    if 2 * per_batch > room:  # one that is used and one that is read
        most = max(0, (room // 2 - need.reading_bytes) // max(1, need.sample_bytes))
        fits = f"use batch_size={most} or smaller, or " if most else ""
        raise InputError(
            f"A batch of {need.batch_size} takes {format_bytes(per_batch)}, and one is read while another is used:"
            f" that is more than the {format_bytes(max(0, room))} that are left of the budget.",
            f"To stay within it, {fits}give a larger `ram` ({format_bytes(least(need.held_bytes + 2 * per_batch))} at the least).",
        )
    group = max(1, min(MOST_GROUP, group_bytes // need.batch_bytes, room // (8 * per_batch)))
    slot = group * need.batch_bytes + need.reading_bytes
    slots = room // slot
    workers = max(1, min(threads, MOST_THREADS, (slots - IN_USE) // 2))
    ahead = max(0, min(MOST_AHEAD, slots - IN_USE - workers))
    held = budget_bytes - room + min(slots, workers + ahead + IN_USE) * slot
    return Sizes(int(group), int(workers), int(ahead), int(held))


def array_sizes(row_bytes: int, rows: int, batch_size: int, budget_bytes: int) -> Sizes:
    """For a script's own arrays. Its batch is what it is: where it is too large for the budget, one at a time is read."""
    held = min(ORDER_BYTES * rows, budget_bytes // 2)
    try:
        need = Need(row_bytes, min(batch_size, rows), 0, held)
        found = sizes_for(need, budget_bytes, os.cpu_count() or 1, FROM_RAM_BYTES)
        ahead = min(found.ahead, FROM_RAM_AHEAD)
        batches = found.group * (found.threads + ahead + IN_USE)
        return replace(found, ahead=ahead, held_bytes=held + MACHINERY_BYTES + batches * row_bytes * batch_size)
    except InputError:
        return Sizes(1, 1, 0, held + IN_USE * row_bytes * batch_size)


def least(size_bytes: int) -> int:
    """The budget of which so much is left after the machinery."""
    return min(size_bytes + MACHINERY_BYTES, -(-size_bytes * 8 // 5))
