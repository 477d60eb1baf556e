"""XLA and JAX where memory runs out while a program is compiled, loaded or run, on GPUs, TPUs and CPUs."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from legroom.explain.sizes import SIZE, dtype_of, shape_of, size_of

Said = Iterator[tuple[str, Any]]
STRONG = (
    *(
        b"ut of memory while trying",
        b"ut of memory allocating",
        b"Failed to allocate request",
        b"That was not possible",
    ),
    *(b"out of memory in memory space", b"in-memory CUBIN", b"bytes for new constant", b"for new constant"),
    *(
        b"best cudnn convolution algorithm",
        b"No algorithm w",
        b"algorithm_picker",
        b"Autotuning failed",
        b"utotuning",
    ),
    *(b"rofiling failure", b"hbm capacity", b"scratch", b"would exceed memory", b"exceeding available bytes"),
    *(
        b"available to allocate buffer",
        b"find a suitable algorithm",
        b"valid cuDNN algorithm",
        b"unable to find an engine",
    ),
)
WEAK = (b"device ordinal", b"XlaRuntimeError", b"JaxRuntimeError")
TRIED = re.compile(rf"[oO]ut of memory while trying to allocate {SIZE}")
CPU = re.compile(rf"[oO]ut of memory allocating {SIZE}(?!,\d|.{{0,40}}(?:allocated so far|after a total))")
REQUEST = re.compile(rf"Failed to allocate request for {SIZE}(?: \((\d{{1,20}})B\))?")
ORDINAL = re.compile(r"device ordinal (\d{1,4})")
NOT_POSSIBLE = re.compile(rf"Attempting to (?:allocate|reserve) {SIZE}")
THERE_ARE = re.compile(rf"There are {SIZE} free")
USED = re.compile(rf"Used {SIZE} of {SIZE} (\w{{2,12}})")
EXCEEDS = re.compile(r"Allocation \(size=(\d{1,20})\) would exceed memory \(size=(\d{1,20})\)")
IN_SPACE = re.compile(r"space=(\w{2,12})")
XLA_SHAPE = re.compile(r"shape = '(\w{1,12})\[([\d,]{0,200})\]")
CORES = re.compile(rf"Hbm usage:? {SIZE}")
AVAILABLE = re.compile(rf"exceeding available bytes: {SIZE}")
BUFFER = re.compile(r"Memory not available to allocate buffer: (\d{1,20})")
SPACE = re.compile(r"out of memory in memory space (\w{1,12})|hbm capacity")
CUBIN = re.compile(r"in-memory CUBIN(?=.{0,2000}OUT_OF_MEMORY)")
CONSTANT = re.compile(rf"[fF]ailed to allocate {SIZE} for new constant")
FATAL_PICKING = (
    *(
        "No algorithm w",
        "best cudnn convolution",
        "Autotuning failed",
        "find a suitable algorithm",
        "no-scratch runner",
        "find a valid cuDNN algorithm",
        "unable to find an engine",
    ),
)
PICKING = ("algorithm_picker", "utotun", "rofiling failure", "scratch", *FATAL_PICKING)
OUT = ("out of memory", "Out of memory", "RESOURCE_EXHAUSTED", "xhausted", "OUT_OF_MEMORY", "ailed to allocate")


def read(text: str) -> Said:
    picked = list(picking(text)) if any(word in text for word in PICKING) else []
    if ("oom", "autotune") in picked or "rofiling failure" in text:
        yield from picked
        picked = []
    if "rofiling failure" in text:
        return  # one of the algorithms, which the others outlive; what `picking` says of it belongs to the fatal one
    for pattern, say in MESSAGES:
        if found := pattern.search(text):
            yield from say(text, found)
            break
    yield from picked
    if ordinal := ORDINAL.search(text):
        yield "device_hint", f"GPU:{ordinal[1]}"
    if "XlaRuntimeError" in text or "JaxRuntimeError" in text:
        yield "raised", None


def picking(text: str) -> Said:
    """An algorithm that was tried and had no room for its workspace; fatal where none is left, or where the text says so."""
    if any(word in text for word in FATAL_PICKING):
        yield "oom", "autotune"
        yield "no_algorithm", None
    elif any(word in text for word in OUT):
        yield "autotune", None
        if "rofiling failure" in text and (tried := TRIED.search(text)):
            yield "tried_bytes", size_of(tried[1], tried[2])


def plain(text: str, asked: re.Match[str]) -> Said:
    yield "oom", "xla"
    yield "failed_bytes", size_of(asked[1], asked[2])


def on_cpu(text: str, asked: re.Match[str]) -> Said:
    yield from plain(text, asked)
    yield "device", "CPU:0"


def with_bytes(text: str, asked: re.Match[str]) -> Said:
    yield "oom", "xla"
    yield "failed_bytes", int(asked[3]) if asked[3] else size_of(asked[1], asked[2])


def not_possible(text: str, asked: re.Match[str]) -> Said:
    yield "oom", "reserve"
    yield "failed_bytes", size_of(asked[1], asked[2])
    if free := THERE_ARE.search(text):
        yield "free_bytes", size_of(free[1], free[2])


def memory_space(text: str, found: re.Match[str]) -> Said:
    """A TPU's compiler, which knows before it runs what the program takes and what the chip has."""
    yield "oom", "hbm"
    if found[1] and found[1].lower() != "hbm":
        yield "on_chip", found[1]
    if used := USED.search(text):
        yield "failed_bytes", size_of(used[1], used[2])
        yield "limit_bytes", size_of(used[3], used[4])


def one_too_large(text: str, exceeds: re.Match[str]) -> Said:
    """The same on one array that the whole chip cannot hold, or the scratch memory of a core."""
    space = IN_SPACE.search(text)
    on_chip = space is not None and space[1] != "hbm"
    yield "oom", "hbm" if on_chip else "tensor"
    yield "failed_bytes", int(exceeds[1])
    yield "limit_bytes", int(exceeds[2])
    if space is not None and on_chip:
        yield "on_chip", space[1]
    if (shape := XLA_SHAPE.search(text)) and (sizes := shape_of(shape[2])) is not None:
        yield "shape", sizes
        yield "dtype", dtype_of(shape[1])


def both_cores(text: str, available: re.Match[str]) -> Said:
    """The same on a chip with two kinds of cores."""
    yield "oom", "hbm"
    yield "failed_bytes", sum(size_of(core[1], core[2]) for core in CORES.finditer(text))
    yield "limit_bytes", size_of(available[1], available[2])


def no_buffer(text: str, buffer: re.Match[str]) -> Said:
    """MIOpen, which says in the next line that no algorithm is left."""
    yield "oom", "autotune"
    yield "no_algorithm", None
    yield "failed_bytes", int(buffer[1])


def not_loaded(text: str, found: re.Match[str]) -> Said:
    yield "oom", "load"


MESSAGES: tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str]], Said]], ...] = (
    (TRIED, plain),
    (CPU, on_cpu),
    (REQUEST, with_bytes),
    (NOT_POSSIBLE, not_possible),
    (SPACE, memory_space),
    (EXCEEDS, one_too_large),
    (AVAILABLE, both_cores),
    (BUFFER, no_buffer),
    (CUBIN, not_loaded),
    (CONSTANT, plain),
)
