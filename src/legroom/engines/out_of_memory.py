"""An out-of-memory error of TensorFlow's, read into facts: from the exception, or from what a crashed process left in its log."""

import re
import signal
from collections.abc import Iterator
from math import prod
from pathlib import Path

from legroom.capture.frames import ANSI, user_frames
from legroom.records.rehearsal import OomFact
from legroom.records.step import dtype_bytes

ERROR = "ResourceExhaustedError"
NOT_COPIED = "Dst tensor is not initialized"  # an InternalError: a copy to the GPU that found no memory there
ASKED = re.compile(r"OOM when allocating (?:\w+ )?tensor (?:with|of) shape ?\[([\d,]*)\] and type (\w+)")
NODE = re.compile(r"\{\{node ([^}]+)\}\}")
EAGER_OP = re.compile(r"__wrapped__(\w+?)_device_|\[Op:(\w+)\]")
AROUND = re.compile(r"^\{\{function_node [^}]*\}\}\s*|\s*\[Op:\w*\].*$")
NAMES = {"float": "float32", "double": "float64", "half": "float16"}  # as TensorFlow's C++ says them
LOGGED = re.compile(
    r"Allocator \(\w+\) ran out of memory trying to allocate [^\n]*?\(rounded to (\d+)\)\s*requested by op ([^\n]*)"
)
HARMLESS = "not a failure"
BAD_ALLOC = "std::bad_alloc"
FATAL = re.compile(r"^(?:F\d{4} |\d{4}-\d\d-\d\d [\d:.]+: F |terminate called)[^\n]*", re.MULTILINE)
STACK_LINE = re.compile(r'^  File "([^"]+)", line (\d+) in (\S+)', re.MULTILINE)
NOT_THE_USERS = ("site-packages", "dist-packages", "<frozen", "runpy.py", str(Path(__file__).resolve().parents[1]))


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def oom_of(error: BaseException) -> OomFact | None:
    """The out-of-memory error in an exception or behind it, or None. Known by its class's name: TensorFlow is not imported."""
    for inner in chain(error):
        if any(cls.__name__ == ERROR for cls in type(inner).__mro__) or NOT_COPIED in str(inner):
            return read_message(str(inner), place_of(inner))
    return None


def is_oom(error: BaseException) -> bool:
    """Whether this very error is TensorFlow's for memory that is not there."""
    return any(cls.__name__ == ERROR for cls in type(error).__mro__) or NOT_COPIED in str(error)


def read_message(text: str, place: str = "") -> OomFact:
    """The facts in a message of TensorFlow's."""
    text = ANSI.sub("", text)
    lines = [AROUND.sub("", line).strip() for line in text.splitlines() if line.strip()]
    line = next((line for line in lines if "OOM" in line or "llocat" in line), lines[0] if lines else ERROR)
    asked = ASKED.search(text)
    shape = tuple(int(size) for size in asked[1].split(",") if size) if asked else None
    dtype = NAMES.get(asked[2], asked[2]) if asked else ""
    size = dtype_bytes(dtype, prod(shape)) if shape is not None else None
    return OomFact(op_in(text), shape, dtype, size, line[:300], place=place)


def op_in(text: str) -> str:
    """The node of the graph, which has the layer's name in it, or else the kind of operation."""
    node = NODE.search(text)
    if node:
        return node[1]
    op = EAGER_OP.search(text)
    return (op[1] or op[2]) if op else ""


def place_of(error: BaseException) -> str:
    """The innermost line of the user's code, or nothing."""
    lines = [line for line in user_frames(error).splitlines() if not any(name in line for name in NOT_THE_USERS)]
    return lines[-1].strip().removeprefix("at ") if lines else ""


def read_log(log: str) -> OomFact | None:
    """What the log of a process that crashed says of memory; None if it says that nothing ran out."""
    found = [match for match in LOGGED.finditer(log) if HARMLESS not in log[match.start() : match.end() + 200]]
    if found:
        op = found[-1][2].strip()
        return OomFact(
            op, None, "", int(found[-1][1]), "TensorFlow's allocator ran out of memory.", place=crash_line(log)
        )
    if BAD_ALLOC in log:
        return OomFact("", None, "", None, f"The process ended with {BAD_ALLOC}.", place=crash_line(log))
    return None


def crash_clues(log: str) -> list[str]:
    """Of a crash that says nothing of memory: the last check of a native library that failed, and the line of the user's code."""
    found = [FATAL.findall(log)[-1:], [f"at {line}" for line in (crash_line(log),) if line]]
    return [clue.strip() for group in found for clue in group]


def crash_line(log: str) -> str:
    """The innermost line of the user's code in what Python's fault handler wrote."""
    for file, line, name in STACK_LINE.findall(log[max(0, log.rfind("Fatal Python error")) :]):
        if not any(part in file for part in NOT_THE_USERS):
            return f"{file}:{line} in {name}"
    return ""


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
