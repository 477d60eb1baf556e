"""A list of allocations and frees run through an allocator: what it held at most, and what failed first, and for whom."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from legroom.engines.bfc import Bfc, OutOfMemory, Shortage

Event = tuple[Hashable, int | None, str]
"""(key, size in bytes, label) allocates, (key, None, label) frees. A key may be used again once it was freed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first allocation that failed: which event of the list, whose it was, and what was missing."""

    event: int
    label: str
    shortage: Shortage


@dataclass(frozen=True, slots=True)
class Replay:
    """The allocator's counts at the end, and the event that set the peak (-1 where none went past the peak before)."""

    events: int
    in_use_bytes: int
    peak_in_use_bytes: int
    peak_event: int
    reserved_bytes: int
    peak_reserved_bytes: int
    free_bytes: int
    largest_free_bytes: int
    failure: Failure | None


def replay(events: Iterable[Event], bfc: Bfc, *, stop_at_failure: bool = True) -> Replay:
    """Runs the events through `bfc`, which keeps its state. Sizes of 0 take nothing; going on, what failed takes nothing."""
    addresses: dict[Hashable, int] = {}
    allocate, free = bfc.allocate, bfc.free
    peak, peak_event = bfc.peak_in_use_bytes, -1
    failure: Failure | None = None
    i = -1
    for i, (key, size_bytes, label) in enumerate(events):
        if size_bytes is None:
            address = addresses.pop(key)
            if address >= 0:
                free(address)
            continue
        try:
            addresses[key] = allocate(size_bytes) if size_bytes else -1
        except OutOfMemory as error:
            addresses[key] = -1
            failure = failure or Failure(i, label, error.shortage)
            if stop_at_failure:
                break
        if bfc.peak_in_use_bytes > peak:
            peak, peak_event = bfc.peak_in_use_bytes, i
    return Replay(
        events=i + 1,
        in_use_bytes=bfc.in_use_bytes,
        peak_in_use_bytes=bfc.peak_in_use_bytes,
        peak_event=peak_event,
        reserved_bytes=bfc.reserved_bytes,
        peak_reserved_bytes=bfc.peak_reserved_bytes,
        free_bytes=bfc.free_bytes,
        largest_free_bytes=bfc.largest_free_bytes,
        failure=failure,
    )
