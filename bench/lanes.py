"""Cases side by side, each lane with cores of its own: a case and the processes it starts see no more cores than on a small machine."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

CORES = 2

Case = TypeVar("Case")
Found = TypeVar("Found")


def side_by_side(
    cases: Sequence[Case], find: Callable[[Case], Found], lanes: int, each: int | None = None
) -> Iterator[Found]:
    """What is found for each case, in their order. Each lane has so many cores; a single one has all, unless that is said."""
    free = iter(range(lanes))
    held = threading.Lock()
    cores = sorted(os.sched_getaffinity(0))

    def take_cores() -> None:
        with held:
            number = next(free)
        width = each or CORES
        first = number * width % len(cores)
        os.sched_setaffinity(0, cores[first : first + width])  # of this thread, and of the processes that it starts

    with ThreadPoolExecutor(lanes, initializer=take_cores if lanes > 1 or each else None) as pool:
        yield from pool.map(find, cases)
