"""What TensorFlow's real allocator did, read back: from its log, from a profile, from the dump that it prints at an OOM.

The log needs TF_CPP_MIN_LOG_LEVEL=0 and TF_CPP_VMODULE=bfc_allocator=4 before TensorFlow starts (2.21's line format, with
thread ids). Level 4 walks the stack at every event, 30 ms each. A profile (`tf.profiler.experimental.start` before the first
tensor) costs nothing and names the op; it lacks the regions, which VMODULE level 1 logs. Both come out in the order of the
allocator's lock, whatever the threads do.
"""

import pathlib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

CPU = "bfc_cpu_allocator_for_gpu"

_LINE = re.compile(r"\s(\d+) bfc_allocator\.cc:\d+\] (.*)")
_ALLOCATE = re.compile(r"AllocateRaw (\S+)  ?(\d+)(?: (0x[0-9a-f]+|0|\(nil\)))?$")
_FREE = re.compile(r"\[mem-debug\] DeallocateRaw,([^,]*),(\d+),(0x[0-9a-f]+),")
_EXTENDING = re.compile(r"Extending allocation by \S+ bytes for (\S+)\.$")
_EXTEND = re.compile(r"Allocated memory at (0x[0-9a-f]+) to (0x[0-9a-f]+)")
_RELEASE = re.compile(r"Deallocate region with ptr = (0x[0-9a-f]+)")
_CHUNK = re.compile(r"(InUse|Free ) at ([0-9a-f]+) of size (\d+)")


class LogEvent(NamedTuple):
    """One thing that the allocator did. `kind`: allocate, free, fail, extend (a new region) or release (of a region)."""

    kind: str
    size_bytes: int
    address: int
    label: str = ""  # the op and what for: only a profile knows, and the last two only it too
    chunk_bytes: int = 0
    in_use_bytes: int = 0


class RecordedMemory:
    """Regions where the real ones lay: give it to `Bfc` as its memory, and every address must come out as recorded."""

    coalesces = False

    def __init__(self, events: Iterable[LogEvent]) -> None:
        self._regions = [event for event in events if event.kind == "extend"][::-1]

    def reserve(self, size_bytes: int) -> int | None:
        """The next recorded region; it must be of the size asked for."""
        region = self._regions.pop()
        if region.size_bytes != size_bytes:
            raise ValueError(f"The real allocator took a region of {region.size_bytes} bytes here, not {size_bytes}.")
        return region.address

    def release(self, address: int, size_bytes: int) -> None:
        """Nothing to do: a region that comes back is recorded again."""


def read_log(lines: Iterable[str], allocator: str = CPU) -> list[LogEvent]:
    """The events of one allocator of a log of level 4; below that, only its regions (1 and 2) and allocations (3)."""
    events: list[LogEvent] = []
    serving: dict[str, str] = {}  # the allocator that each thread last called
    asked: dict[str, int] = {}  # what each thread is waiting for
    freeing: dict[str, LogEvent] = {}
    for line in lines:
        if not (found := _LINE.search(line)):
            continue
        thread, text = found.groups()
        event: LogEvent | None = None
        if match := _ALLOCATE.match(text):
            serving[thread], size, address = match.groups()
            if address is None:
                asked[thread] = int(size)
            elif asked.pop(thread, 0):  # no "Returning" came before: it failed, or this is level 3
                given = int(address, 16) if address.startswith("0x") else 0
                event = LogEvent("allocate" if given else "fail", int(size), given)
        elif text.startswith("Returning: 0x"):
            event = LogEvent("allocate", asked.pop(thread), int(text.split()[1], 16))
        elif match := _FREE.match(text):
            serving[thread], size, address = match.groups()
            freeing[thread] = LogEvent("free", int(size), int(address, 16))
        elif text.startswith("F: "):
            event = freeing.pop(thread)
        elif match := _EXTENDING.match(text):
            serving[thread] = match[1]
        else:
            event = _read_region(text)
        if event and serving.get(thread) == allocator:
            events.append(event)
    return events


def _read_region(text: str) -> LogEvent | None:
    if match := _EXTEND.match(text):
        start, end = (int(part, 16) for part in match.groups())
        return LogEvent("extend", end - start, start)
    if match := _RELEASE.match(text):
        return LogEvent("release", 0, int(match[1], 16))
    return None


def read_dump(lines: Iterable[str]) -> list[tuple[int, int, bool]]:
    """Address, size and use of every chunk in the (only) dump of an OOM."""
    found = (match.groups() for line in lines if (match := _CHUNK.search(line)))
    return sorted((int(address, 16), int(size), use == "InUse") for use, address, size in found)


def read_profile(folder: pathlib.Path, allocator: str = CPU) -> list[LogEvent]:
    """The allocations and frees in the profile under `folder`, with the op, its shape and what the memory was for."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (path,) = folder.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    timed: list[tuple[int, LogEvent]] = []
    for plane in space.planes:
        kinds = {number: entry.name for number, entry in plane.event_metadata.items() if "Memory" in entry.name}
        for line in plane.lines:
            for event in line.events:
                kind = {"MemoryAllocation": "allocate", "MemoryDeallocation": "free"}.get(
                    kinds.get(event.metadata_id, "")
                )
                stats = _stats(event, plane.stat_metadata) if kind else {}
                if kind and stats["allocator_name"] == allocator:
                    timed.append((line.timestamp_ns * 1000 + event.offset_ps, _from_stats(kind, stats)))
    return [event for _, event in sorted(timed, key=lambda pair: pair[0])]


def _stats(event: Any, names: Any) -> dict[str, Any]:
    values = {}
    for stat in event.stats:
        field = stat.WhichOneof("value")
        value = getattr(stat, field)
        values[names[stat.metadata_id].name] = names[value].name if field == "ref_value" else value
    return values


def _from_stats(kind: str, stats: dict[str, Any]) -> LogEvent:
    label = " ".join(str(stats[name]) for name in ("tf_op", "region_type", "shape") if stats.get(name))
    return LogEvent(
        kind, stats["requested_bytes"], stats["addr"], label, stats["allocation_bytes"], stats["bytes_allocated"]
    )
