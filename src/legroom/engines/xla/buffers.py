"""Reads XLA's buffer assignment and live ranges from their text dumps (`BufferAssignment::ToString`, `HloLiveRange::ToString`).

jaxlib 0.9 writes both into one file; later releases write the live ranges, and the total, into files of their own.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from legroom.engines.xla.hlo_text import Shape, parse_shapes
from legroom.errors import EngineError

_ALLOCATION = re.compile(r"allocation (\d+): size (\d+)(.*):$")
_VALUE = re.compile(r" value: <\d+ ([^\s{]+)(\{[\d,]*\})?(?: \(phi\))? @-?\d+> \(size=(\d+),offset=(\d+)\): (.*)$")
_TOTAL = re.compile(r"^Total bytes(?: used)?: (\d+)", re.MULTILINE)
_PARAMETER = re.compile(r", parameter (\d+),")
_COLOR = re.compile(r", color (\d+)")
_LIVE_RANGE = re.compile(r"^    ([^\s{]+)(\{[\d,]*\}):(\d+)-(\d+)$", re.MULTILINE)
_SEQUENCE = re.compile(r"^    (\d+):(\S+)$", re.MULTILINE)
_HOST_MEMORY = 5
_REPORT_IT = "Report this together with the versions that `legroom doctor` prints."


@dataclass(frozen=True, slots=True)
class DumpTexts:
    """What the compiler wrote about one program: the scheduled HLO, the buffer assignment, the live ranges and the memory report.

    `live_range` and `report` may be empty where the assignment text holds the same (jaxlib 0.9).
    """

    hlo: str
    assignment: str
    live_range: str = ""
    report: str = ""


@dataclass(frozen=True, slots=True)
class Value:
    """One array or tuple table that the program makes, and where in its allocation it lies."""

    instruction: str
    index: str
    offset_bytes: int
    size_bytes: int
    is_tuple: bool
    shape: Shape | None

    @property
    def key(self) -> str:
        return self.instruction + self.index


@dataclass(frozen=True, slots=True)
class AssignedAllocation:
    """One allocation with all values that share it over time."""

    index: int
    size_bytes: int
    parameter: int | None
    is_constant: bool
    is_output: bool
    is_thread_local: bool
    is_host: bool
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class LiveRanges:
    """The order in which the whole program runs, loop bodies in their places, and from when to when each value lives."""

    sequence: tuple[str, ...]
    ranges: dict[str, tuple[int, int]]


def load_dump(folder: Path) -> DumpTexts:
    """The texts of what XLA dumped into a folder (`--xla_dump_to`); of several programs the one with the largest assignment."""
    assignments = sorted(
        folder.glob("*gpu_after_optimizations-buffer-assignment.txt"), key=lambda path: path.stat().st_size
    )
    if not assignments:
        raise EngineError("The compiler ended without writing its buffer assignment.", _REPORT_IT)
    stem = str(assignments[-1]).removesuffix("-buffer-assignment.txt")
    files = [Path(stem + ending) for ending in ("-live-range.txt", "-memory-usage-report.txt")]
    live_range, report = (file.read_text("utf-8") if file.exists() else "" for file in files)
    return DumpTexts(Path(stem + ".txt").read_text("utf-8"), assignments[-1].read_text("utf-8"), live_range, report)


def read_allocations(dump: DumpTexts) -> list[AssignedAllocation]:
    """All allocations, checked against the compiler's own total."""
    end = dump.assignment.find("\nTotal bytes used:")
    allocations: list[AssignedAllocation] = []
    header: re.Match[str] | None = None
    values: list[Value] = []
    for line in dump.assignment[: end if end >= 0 else None].splitlines():
        if line.startswith(" value: "):
            values.append(_read_value(line))
        elif line.startswith("allocation "):
            if header is not None:
                allocations.append(_read_allocation(header, values))
            header, values = _ALLOCATION.match(line), []
    if header is not None:
        allocations.append(_read_allocation(header, values))
    _check(allocations, dump)
    return allocations


def _check(allocations: list[AssignedAllocation], dump: DumpTexts) -> None:
    totals = _TOTAL.findall(dump.assignment) or _TOTAL.findall(dump.report)
    if not allocations:
        raise EngineError("The compiler's buffer assignment could not be read: it has no allocations.", _REPORT_IT)
    if not totals:
        raise EngineError(
            "The compiler's own total is neither in its buffer assignment nor in its memory report.", _REPORT_IT
        )
    read, total = sum(allocation.size_bytes for allocation in allocations), sum(map(int, totals))
    if read != total:
        raise EngineError(
            f"The compiler's buffer assignment was misread: its allocations sum to {read} bytes, its own total is {total}.",
            _REPORT_IT,
        )
    for allocation in allocations:
        for value in allocation.values:
            if value.offset_bytes + value.size_bytes > allocation.size_bytes:
                raise EngineError(
                    f"The compiler's buffer assignment was misread: {value.key} ends outside allocation {allocation.index}.",
                    _REPORT_IT,
                )


def _read_allocation(header: re.Match[str], values: list[Value]) -> AssignedAllocation:
    index, size, rest = header.groups()
    parameter = _PARAMETER.search(rest)
    color = _COLOR.search(rest)
    return AssignedAllocation(
        index=int(index),
        size_bytes=int(size),
        parameter=int(parameter.group(1)) if parameter else None,
        is_constant=", constant" in rest,
        is_output=", maybe-live-out" in rest,
        is_thread_local=", thread-local" in rest,
        is_host=color is not None and int(color.group(1)) == _HOST_MEMORY,
        values=tuple(values),
    )


def _read_value(line: str) -> Value:
    found = _VALUE.match(line)
    if found is None:
        raise EngineError(
            f"The compiler's buffer assignment could not be read at this line: {line.strip()[:200]}", _REPORT_IT
        )
    instruction, index, size, offset, shape = found.groups()
    is_tuple = shape.startswith("(")
    array = None if is_tuple else next(iter(parse_shapes(shape)), None)
    return Value(instruction, index or "{}", int(offset), int(size), is_tuple, array)


def read_live_ranges(dump: DumpTexts) -> LiveRanges:
    """The schedule and the live ranges, inclusive at both ends."""
    text = dump.live_range or dump.assignment
    start = text.find("InstructionSequence:", text.find("HloLiveRange"))
    middle = text.find("BufferLiveRange:", start)
    end = text.find("\n  Live ranges at", middle)
    if start < 0 or middle < 0:
        raise EngineError("The compiler's live ranges could not be read: they are not in its dump.", _REPORT_IT)
    steps = _SEQUENCE.findall(text[start:middle])
    sequence = tuple(name for _, name in steps)
    if not sequence or [int(moment) for moment, _ in steps] != list(range(len(steps))):
        raise EngineError(
            "The compiler's live ranges could not be read: its instruction sequence has holes.", _REPORT_IT
        )
    last = len(sequence) - 1
    ranges = {
        name + index: (min(int(birth), last), min(int(death), last))
        for name, index, birth, death in _LIVE_RANGE.findall(text[middle : end if end >= 0 else None])
    }
    return LiveRanges(sequence, ranges)
