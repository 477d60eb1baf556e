"""XLA and JAX where memory runs out while a program is compiled, loaded or run, on GPUs, TPUs and CPUs."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.sizes import SIZE, size_of

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
    *(b"rofiling failure", b"hbm capacity", b"scratch"),
)
WEAK = (b"device ordinal", b"XlaRuntimeError", b"JaxRuntimeError")
TRIED = re.compile(rf"[oO]ut of memory while trying to allocate {SIZE}")
CPU = re.compile(rf"[oO]ut of memory allocating {SIZE}")
REQUEST = re.compile(rf"Failed to allocate request for {SIZE}(?: \((\d{{1,20}})B\))?")
ORDINAL = re.compile(r"device ordinal (\d{1,4})")
NOT_POSSIBLE = re.compile(rf"Attempting to (?:allocate|reserve) {SIZE}")
THERE_ARE = re.compile(rf"There are {SIZE} free")
USED = re.compile(rf"Used {SIZE} of {SIZE} (\w{{2,12}})")
CONSTANT = re.compile(rf"[fF]ailed to allocate {SIZE} for new constant")
PICKING = ("algorithm_picker", "utotun", "best cudnn convolution", "No algorithm w", "rofiling failure", "scratch")
OUT = ("out of memory", "Out of memory", "RESOURCE_EXHAUSTED", "xhausted", "OUT_OF_MEMORY", "ailed to allocate")


def read(text: str) -> Iterator[tuple[str, Any]]:
    if any(word in text for word in PICKING):
        yield from picking(text)
    if tried := TRIED.search(text) or CPU.search(text):
        yield "oom", "xla"
        yield "failed_bytes", size_of(tried[1], tried[2])
        if "llocating" in tried[0]:
            yield "device", "CPU:0"
    elif request := REQUEST.search(text):
        yield "oom", "xla"
        yield "failed_bytes", int(request[3]) if request[3] else size_of(request[1], request[2])
    elif refused := NOT_POSSIBLE.search(text):
        yield "oom", "reserve"
        yield "failed_bytes", size_of(refused[1], refused[2])
        if free := THERE_ARE.search(text):
            yield "free_bytes", size_of(free[1], free[2])
    elif "out of memory in memory space" in text or "hbm capacity" in text:
        yield from memory_space(text)
    elif "in-memory CUBIN" in text and "OUT_OF_MEMORY" in text:
        yield "oom", "load"
    elif constant := CONSTANT.search(text):
        yield "oom", "xla"
        yield "failed_bytes", size_of(constant[1], constant[2])
    if ordinal := ORDINAL.search(text):
        yield "device_hint", f"GPU:{ordinal[1]}"
    if "XlaRuntimeError" in text or "JaxRuntimeError" in text:
        yield "raised", None


def picking(text: str) -> Iterator[tuple[str, Any]]:
    """An algorithm that was tried and had no room for its workspace; fatal where none is left, or where the text says so."""
    if "No algorithm w" in text or "best cudnn convolution" in text or "Autotuning failed" in text:
        yield "oom", "autotune"
        yield "no_algorithm", None
    elif any(word in text for word in OUT):
        yield "autotune", None


def memory_space(text: str) -> Iterator[tuple[str, Any]]:
    """A TPU's compiler, which knows before it runs what the program takes and what the chip has."""
    yield "oom", "hbm"
    used = USED.search(text)
    if used:
        yield "failed_bytes", size_of(used[1], used[2])
        yield "limit_bytes", size_of(used[3], used[4])
