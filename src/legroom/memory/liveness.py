"""How many bytes are held at every moment, and by whom at one of them.

Buffers of one allocation may share bytes, at different moments (reuse) or at the same one (an in-place update): a byte counts
once. The sweep takes first and last use as open and close events, as tinygrad's memory planner does (tinygrad/schedule/memory.py).
"""

from bisect import bisect_left
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import pairwise

from legroom.records.program import Buffer, Program


class _Coverage:
    """How often each byte of an allocation is held: borders in order, and the count from each border to the next."""

    def __init__(self) -> None:
        self._borders = [0]
        self._counts = [0]
        self.held_bytes = 0

    def change(self, start: int, stop: int, by: int) -> None:
        """Adds `by` to the count of the bytes [start, stop)."""
        first, last = self._split(start), self._split(stop)
        for i in range(first, last):
            before = self._counts[i]
            self._counts[i] = before + by
            if (before == 0) != (before + by == 0):
                width = self._borders[i + 1] - self._borders[i]
                self.held_bytes += width if before == 0 else -width
        self._join(last)
        self._join(first)

    def _split(self, at: int) -> int:
        i = bisect_left(self._borders, at)
        if i == len(self._borders) or self._borders[i] != at:
            self._borders.insert(i, at)
            self._counts.insert(i, self._counts[i - 1])
        return i

    def _join(self, i: int) -> None:
        if i > 0 and self._counts[i] == self._counts[i - 1]:
            del self._borders[i], self._counts[i]


def held_bytes(program: Program) -> list[int]:
    """The bytes held at each moment of the schedule. A buffer is held at its birth, at its death, and in between."""
    moments = len(program.schedule)
    changes: list[list[tuple[Buffer, int]]] = [[] for _ in range(moments + 1)]
    for buffer in _held(program.buffers, moments):
        changes[max(0, buffer.birth)].append((buffer, 1))
    for buffer in _held(program.buffers, moments):
        changes[min(buffer.death + 1, moments)].append((buffer, -1))
    coverages = {allocation.index: _Coverage() for allocation in program.allocations}
    curve = []
    total = 0
    for now in changes[:moments]:
        for buffer, by in now:
            coverage = coverages[buffer.allocation]
            total -= coverage.held_bytes
            coverage.change(buffer.offset_bytes, buffer.offset_bytes + buffer.size_bytes, by)
            total += coverage.held_bytes
        curve.append(total)
    return curve


def _held(buffers: Iterable[Buffer], moments: int) -> list[Buffer]:
    return [b for b in buffers if b.size_bytes > 0 and b.birth <= b.death and b.birth < moments and b.death >= 0]


def shares_at(program: Program, moment: int) -> dict[int, int]:
    """Who holds what at a moment: the position of a buffer in the program → the bytes that are its own.

    A byte that several live buffers share belongs to the one born last; of several, to the last in the program.
    """
    by_allocation: dict[int, list[int]] = {}
    for position, buffer in enumerate(program.buffers):
        if buffer.birth <= moment <= buffer.death and buffer.size_bytes > 0:
            by_allocation.setdefault(buffer.allocation, []).append(position)
    shares: dict[int, int] = {}
    for positions in by_allocation.values():
        _share_out(program.buffers, positions, shares)
    return shares


def _share_out(buffers: tuple[Buffer, ...], positions: list[int], shares: dict[int, int]) -> None:
    """Walks the borders of one allocation's live buffers with the newest of those that are open on top of a heap."""
    opening = sorted(positions, key=lambda p: buffers[p].offset_bytes)
    borders = sorted(
        {b for p in positions for b in (buffers[p].offset_bytes, buffers[p].offset_bytes + buffers[p].size_bytes)}
    )
    heap: list[tuple[int, int]] = []
    next_opening = 0
    for start, stop in pairwise(borders):
        while next_opening < len(opening) and buffers[opening[next_opening]].offset_bytes <= start:
            position = opening[next_opening]
            heappush(heap, (-buffers[position].birth, -position))
            next_opening += 1
        while heap and _end(buffers[-heap[0][1]]) <= start:
            heappop(heap)
        if heap:
            owner = -heap[0][1]
            shares[owner] = shares.get(owner, 0) + stop - start


def _end(buffer: Buffer) -> int:
    return buffer.offset_bytes + buffer.size_bytes
