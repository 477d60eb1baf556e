"""TensorFlow's best-fit-with-coalescing allocator, byte for byte: where each tensor lands and what the pool takes for it.

Modelled on xla/tsl/framework/bfc_allocator.cc of TensorFlow 2.21. Its 21 bins only speed up one order, by size and then by
address, so one sorted list of holes packed as `size << 48 | address` finds the same hole. A chunk is handed out whole unless
that wastes half of it or 128 MiB. Memory comes in regions: one pool, or regions that double from 2 MiB on up to the limit.
"""

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

ALIGNMENT_BYTES = 256
FIRST_REGION_BYTES = 2 << 20
MOST_WASTE_BYTES = 128 << 20

_SHIFT = 48
_ADDRESS = (1 << _SHIFT) - 1


class Memory(Protocol):
    """Where regions come from: the driver or the host. `coalesces`: regions that touch become one (no TF device has it)."""

    coalesces: bool

    def reserve(self, size_bytes: int) -> int | None:
        """The address of a new region of that size, or None where it is refused."""

    def release(self, address: int, size_bytes: int) -> None:
        """Takes a region back."""


class OrderedMemory:
    """Regions side by side at rising or falling addresses, refused past `capacity_bytes`.

    The order settles which of two equal holes is taken. Linux hands the CPU's allocator falling addresses; CUDA was seen
    to do either.
    """

    def __init__(self, capacity_bytes: int | None = None, *, descending: bool = False, coalesces: bool = False) -> None:
        self.coalesces = coalesces
        self._left_bytes = capacity_bytes
        self._descending = descending
        self._next = 1 << (_SHIFT - 1) if descending else 0

    def reserve(self, size_bytes: int) -> int | None:
        """The address of a new region of that size, or None where it is refused."""
        if self._left_bytes is not None:
            if size_bytes > self._left_bytes:
                return None
            self._left_bytes -= size_bytes
        if self._descending:
            self._next -= size_bytes
            return self._next
        self._next += size_bytes
        return self._next - size_bytes

    def release(self, address: int, size_bytes: int) -> None:
        """Takes a region back; its addresses are not used again."""
        if self._left_bytes is not None:
            self._left_bytes += size_bytes


@dataclass(frozen=True, slots=True)
class Shortage:
    """What an allocation asked for and what there was when it failed."""

    requested_bytes: int
    rounded_bytes: int
    in_use_bytes: int
    reserved_bytes: int
    limit_bytes: int
    largest_free_bytes: int

    @property
    def free_bytes(self) -> int:
        """The bytes under the limit that nobody uses, in holes or not yet reserved."""
        return self.limit_bytes - self.in_use_bytes

    @property
    def fragmented(self) -> bool:
        """True where the bytes would have sufficed, had they lain side by side."""
        return self.rounded_bytes <= self.free_bytes


class OutOfMemory(Exception):
    """No hole is large enough and the pool cannot grow. An answer of the simulation, not an error of Legroom's."""

    def __init__(self, shortage: Shortage) -> None:
        super().__init__(shortage)
        self.shortage = shortage


class Chunk(NamedTuple):
    """A piece of a region, as `Bfc.chunks` shows it."""

    region: int
    address: int
    size_bytes: int
    in_use: bool


class Bfc:
    """One device's allocator. Its counts are attributes to read: `in_use_bytes`, `peak_in_use_bytes`, `reserved_bytes`, …

    A GPU's is `Bfc(limit, growth=False, garbage_collection=True)`, with `growth=True` where memory growth is set. The CPU's
    (TF_CPU_ALLOCATOR_USE_BFC=1) is `Bfc(limit, memory=OrderedMemory(descending=True))`.
    """

    __slots__ = (
        "_end_keys", "_garbage_collection", "_holes", "_keys", "_live", "_memory", "_most_waste", "_next_region_bytes",
        "_regions", "_walls", "in_use_bytes", "limit_bytes", "peak_in_use_bytes", "peak_reserved_bytes", "reserved_bytes",
    )  # fmt: skip

    def __init__(
        self,
        limit_bytes: int,
        *,
        growth: bool = True,
        garbage_collection: bool = False,
        fragmentation_fraction: float = 0.0,
        memory: Memory | None = None,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.in_use_bytes = 0
        self.peak_in_use_bytes = 0
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0
        self._garbage_collection = garbage_collection
        self._most_waste = int(fragmentation_fraction * limit_bytes) if fragmentation_fraction > 0 else MOST_WASTE_BYTES
        self._memory: Memory = OrderedMemory() if memory is None else memory
        self._next_region_bytes = _round_up(min(limit_bytes, FIRST_REGION_BYTES) if growth else limit_bytes)
        self._regions: list[tuple[int, int]] = []  # (address, size), by address
        self._walls: set[int] = set()  # where a region begins: chunks on either side never merge
        self._live: dict[int, int] = {}  # address → chunk size
        self._holes: list[int] = []  # packed, in the order of the bins
        self._keys: dict[int, int] = {}  # where a hole begins → its packed form
        self._end_keys: dict[int, int] = {}  # where a hole ends → its packed form

    def allocate(self, size_bytes: int) -> int:
        """The address of a new chunk for `size_bytes`. Raises `OutOfMemory` where there is none."""
        if size_bytes <= 0:
            raise ValueError(f"An allocation has at least one byte, this one has {size_bytes}.")
        rounded = (size_bytes + 255) & -256
        holes = self._holes
        i = bisect_left(holes, rounded << _SHIFT)
        if i == len(holes):
            if not self._make_room(rounded):
                raise OutOfMemory(self._shortage(size_bytes, rounded))
            i = bisect_left(holes, rounded << _SHIFT)
        key = holes.pop(i)
        address = key & _ADDRESS
        chunk = key >> _SHIFT
        del self._keys[address]
        if chunk >= rounded * 2 or chunk - rounded >= self._most_waste:
            rest = address + rounded
            rest_key = (chunk - rounded) << _SHIFT | rest
            insort(holes, rest_key, 0, i)
            self._keys[rest] = self._end_keys[address + chunk] = rest_key
            chunk = rounded
        else:
            del self._end_keys[address + chunk]
        self._live[address] = chunk
        in_use = self.in_use_bytes = self.in_use_bytes + chunk
        if in_use > self.peak_in_use_bytes:  # noqa: PLR1730 - a call of max costs a tenth of this method
            self.peak_in_use_bytes = in_use
        return address

    def free(self, address: int) -> None:
        """Gives a chunk back and merges it with the holes beside it."""
        chunk = self._live.pop(address)
        self.in_use_bytes -= chunk
        self._add_hole(address, address + chunk)

    def reset_peak(self) -> None:
        """Counts the peak of use from here on, as `reset_memory_stats` does. The peak of reserved bytes stays."""
        self.peak_in_use_bytes = self.in_use_bytes

    @property
    def free_bytes(self) -> int:
        """The bytes of all holes in the regions."""
        return self.reserved_bytes - self.in_use_bytes

    @property
    def largest_free_bytes(self) -> int:
        """The largest hole."""
        return self._holes[-1] >> _SHIFT if self._holes else 0

    def chunk_bytes(self, address: int) -> int:
        """What a live allocation really takes: its size rounded up and whatever was not split off."""
        return self._live[address]

    @property
    def regions(self) -> tuple[tuple[int, int], ...]:
        """Address and size of each region, by address."""
        return tuple(self._regions)

    def chunks(self) -> Iterator[Chunk]:
        """All chunks by address, live and free. For tests and pictures: it is slow."""
        free = {key & _ADDRESS: key >> _SHIFT for key in self._holes}
        starts = [start for start, _ in self._regions]
        for address in sorted(self._live.keys() | free.keys()):
            in_use = address in self._live
            size_bytes = self._live[address] if in_use else free[address]
            yield Chunk(bisect_right(starts, address) - 1, address, size_bytes, in_use)

    def _add_hole(self, start: int, end: int) -> None:
        holes, keys, end_keys = self._holes, self._keys, self._end_keys
        if end in keys and end not in self._walls:
            key = keys.pop(end)
            del holes[bisect_left(holes, key)]
            end += key >> _SHIFT
        if start in end_keys and start not in self._walls:
            key = end_keys.pop(start)
            del holes[bisect_left(holes, key)]
            start = key & _ADDRESS
        key = (end - start) << _SHIFT | start
        insort(holes, key)
        keys[start] = end_keys[end] = key

    def _make_room(self, rounded: int) -> bool:
        return self._extend(rounded) or (self._release_free_regions(rounded) and self._extend(rounded))

    def _extend(self, rounded: int) -> bool:
        """Adds a region that holds `rounded` bytes: as large as is due, less where the limit or the memory says so."""
        available = (self.limit_bytes - self.reserved_bytes) & -ALIGNMENT_BYTES
        if rounded > available:
            return False
        grown = rounded > self._next_region_bytes
        while rounded > self._next_region_bytes:
            self._next_region_bytes *= 2
        size = min(self._next_region_bytes, available)
        address = self._memory.reserve(size)
        while address is None:
            refused, size = size, _step_back(size)
            if size < rounded or size == refused:  # under 2.5 KiB, nine tenths round up again: the real one would hang
                return False
            address = self._memory.reserve(size)
        if not grown:
            self._next_region_bytes *= 2
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        self._add_region(address, size)
        return True

    def _add_region(self, address: int, size: int) -> None:
        i = bisect_left(self._regions, (address, 0))
        before, before_size = self._regions[i - 1] if i else (0, -1)
        if self._memory.coalesces and before + before_size == address:
            self._regions[i - 1] = (before, before_size + size)
        else:
            self._regions.insert(i, (address, size))
            self._walls.add(address)
        self._add_hole(address, address + size)

    def _release_free_regions(self, rounded: int) -> bool:
        """The real one's garbage collection: all regions that are one hole go back, if that could help."""
        if not self._garbage_collection:
            return False
        free = [(start, size) for start, size in self._regions if self._keys.get(start, 0) >> _SHIFT == size]
        if not free or rounded > self.limit_bytes - self.reserved_bytes + sum(size for _, size in free):
            return False
        for start, size in free:
            key = self._keys.pop(start)
            del self._end_keys[start + size]
            del self._holes[bisect_left(self._holes, key)]
            self._regions.remove((start, size))
            self._walls.discard(start)
            self._memory.release(start, size)
            self.reserved_bytes -= size
        return True

    def _shortage(self, requested: int, rounded: int) -> Shortage:
        return Shortage(
            requested_bytes=requested,
            rounded_bytes=rounded,
            in_use_bytes=self.in_use_bytes,
            reserved_bytes=self.reserved_bytes,
            limit_bytes=self.limit_bytes,
            largest_free_bytes=self.largest_free_bytes,
        )


def _round_up(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _single(number: float) -> float:
    """The number as C++ keeps it in a `float`."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _step_back(size: int) -> int:
    """Nine tenths of a region that was refused, in the single precision of the original."""
    return _round_up(int(_single(_single(size) * _single(0.9))))
