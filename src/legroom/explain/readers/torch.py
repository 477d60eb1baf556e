"""Keras on PyTorch: `CUDA out of memory`, which says more than the others."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.sizes import SIZE, size_of

STRONG = (
    b"CUDA out of memory",
    b"HIP out of memory",
    b"OutOfMemoryError",
    b"DefaultCPUAllocator",
    b"CUDA error: out of memory",
    *(
        b"MPS backend out of memory",
        b"XPU out of memory",
        b"NPU out of memory",
        b"HPU out of memory",
        b"MLU out of memory",
    ),
    *(b"cuda runtime error (2)", b"THCudaCheck FAIL", b"CUDA failure 2", b"CUDA driver error: out of memory"),
)
TRIED = re.compile(rf"Tried to allocate {SIZE}")
CARD = re.compile(r"\([GNX]PU (\d{1,4});|[GNX]PU (\d{1,4}) has")
TOTAL = re.compile(
    rf"{SIZE} total capacity|total capaci?ty of {SIZE}|max allowed: {SIZE}"
)  # PyTorch 2.1 and 2.2 write it without its i
ALLOCATED = re.compile(rf"{SIZE} already allocated|memory {SIZE} is allocated by PyTorch|MPS allocated: {SIZE}")
FREE = re.compile(rf"{SIZE} free;|{SIZE} is free|{SIZE} free\)")
RESERVED = re.compile(rf"{SIZE} reserved in total|{SIZE} cached\)|and {SIZE} is reserved by PyTorch but unallocated")
OWN = re.compile(rf"this process has {SIZE} memory in use")
OTHERS = re.compile(rf"Process \d{{1,10}} has {SIZE} memory in use")
ALLOWED = re.compile(rf"{SIZE} allowed;")  # by set_per_process_memory_fraction
ON_CPU = re.compile(r"tried to allocate (\d{1,20}) bytes")


TABLE = {  # PyTorch with another allocator, in lines of its own
    "Currently allocated": "in_use_bytes",
    "Requested  ": "failed_bytes",
    "Device limit": "limit_bytes",
    "Free (according to CUDA)": "free_bytes",
}
ROW = re.compile(rf"^\s{{0,8}}(?:[A-Z][\w() ]{{4,40}}?)\s{{0,24}}: {SIZE}\s{{0,8}}$")
WEAK = tuple(name.encode() for name in TABLE)


def read(text: str) -> Iterator[tuple[str, Any]]:
    name = next((value for words, value in TABLE.items() if text.lstrip().startswith(words)), None)
    if name is not None and (row := ROW.match(text)):
        yield name, size_of(row[1], row[2])
        return
    if "DefaultCPUAllocator" in text:
        yield "oom", "host"
        if tried := ON_CPU.search(text):
            yield "failed_bytes", int(tried[1])
        yield "raised", None
        return
    if "out of memory" not in text or "AllocAsync" in text:
        return
    yield "oom", "torch"
    yield "raised", None
    found: dict[str, int] = {}
    patterns = {"failed_bytes": TRIED, "limit_bytes": TOTAL, "in_use_bytes": ALLOCATED, "free_bytes": FREE}
    for name, pattern in (patterns | {"torch_reserved": RESERVED, "torch_own": OWN}).items():
        if match := pattern.search(text):
            groups = [group for group in match.groups() if group is not None]
            found[name] = size_of(groups[0], groups[1] if len(groups) > 1 else None)
    if "but unallocated" in text and "torch_reserved" in found:
        found["torch_reserved"] += found.get("in_use_bytes", 0)
    if allowed := ALLOWED.search(text):
        found["limit_bytes"] = size_of(allowed[1], allowed[2])
    yield from found.items()
    if others := [size_of(match[1], match[2]) for match in OTHERS.finditer(text)]:
        yield "torch_others", sum(others)
    if card := CARD.search(text):
        yield "device", f"GPU:{card[1] or card[2]}"
