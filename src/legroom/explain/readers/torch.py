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
SAYS_SO = tuple(phrase.decode() for phrase in STRONG)
TRIED = re.compile(rf"Tried to allocate {SIZE}")
CARD = re.compile(r"\([GNX]PU (\d{1,4});|[GNX]PU (\d{1,4}) has")
TOTAL = re.compile(
    rf"{SIZE} total capacity|total capaci?ty of {SIZE}|max allowed: {SIZE}"
)  # PyTorch 2.1 and 2.2 write it without its i
ALLOCATED = re.compile(rf"{SIZE} already allocated|memory {SIZE} is allocated by PyTorch|MPS allocated: {SIZE}")
FREE = re.compile(rf"{SIZE} free;|{SIZE} is free|{SIZE} free\)")
RESERVED = re.compile(rf"{SIZE} reserved in total|{SIZE} cached\)|and {SIZE} is reserved by PyTorch but unallocated")
OWN = re.compile(rf"this process has {SIZE} memory in use")
OTHERS = re.compile(rf"Process \d{{1,10}} has {SIZE} memory in use|other allocations: {SIZE}")
ALLOWED = re.compile(rf"{SIZE} allowed;")  # by set_per_process_memory_fraction
PART = re.compile(  # of such a message, in a line of its own
    r"^\s{0,8}(?:[GNX]PU \d{1,4} has a total|Including non-PyTorch memory|(?:of which|Of the allocated|this process has|Process \d{1,10} has) "
    r"|and [\d.]{1,12} [KMG]iB is reserved|[\d.]{1,12} [KMG]iB is (?:free|allocated by PyTorch))"
)
ON_CPU = re.compile(r"tried to allocate (\d{1,20}) bytes")


TABLE = {  # PyTorch with another allocator, in lines of its own
    "Currently allocated": "in_use_bytes",
    "Requested  ": "failed_bytes",
    "Device limit": "limit_bytes",
    "Free (according to CUDA)": "free_bytes",
}
ROW = re.compile(rf"^\s{{0,8}}(?:[A-Z][\w() ]{{4,40}}?)\s{{0,24}}: {SIZE}\s{{0,8}}$")
WEAK = (
    *(name.encode() for name in TABLE),
    *(b" total capac", b" is free", b" memory in use", b" by PyTorch"),  # a message that was broken into lines
)
SIZES = {
    "failed_bytes": TRIED,
    "limit_bytes": TOTAL,
    "in_use_bytes": ALLOCATED,
    "free_bytes": FREE,
    "torch_reserved": RESERVED,
    "torch_own": OWN,
}


def read(text: str) -> Iterator[tuple[str, Any]]:
    name = next((value for words, value in TABLE.items() if text.lstrip().startswith(words)), None)
    if name is not None and (row := ROW.match(text)):
        yield name, size_of(row[1], row[2])
        return
    if "DefaultCPUAllocator" in text:
        yield "oom", "host"
        yield "allocator", "DefaultCPUAllocator"
        yield "device", "CPU:0"
        if tried := ON_CPU.search(text):
            yield "failed_bytes", int(tried[1])
        yield "raised", None
        return
    if "AllocAsync" in text:
        return
    if "out of memory" in text and any(words in text for words in SAYS_SO):
        yield "oom", "torch"
        yield "raised", None
        yield from account(text)
    elif PART.search(text):
        yield from account(text)


def account(text: str) -> Iterator[tuple[str, Any]]:
    """What PyTorch says of the card, of others and of itself."""
    found: dict[str, int] = {}
    for name, pattern in SIZES.items():
        if match := pattern.search(text):
            found[name] = first_size(match)
    if "but unallocated" in text and "torch_reserved" in found:
        idle = found.pop("torch_reserved")
        found |= {"torch_reserved": idle + found["in_use_bytes"]} if "in_use_bytes" in found else {"torch_idle": idle}
    if allowed := ALLOWED.search(text):
        found["limit_bytes"] = size_of(allowed[1], allowed[2])
    if others := [first_size(match) for match in OTHERS.finditer(text)]:
        found["torch_others"] = sum(others)
    if "MPS" in text and {"limit_bytes", "in_use_bytes", "torch_others"} <= found.keys():
        found["free_bytes"] = max(0, found["limit_bytes"] - found["in_use_bytes"] - found["torch_others"])
    yield from found.items()
    if card := CARD.search(text):
        yield "device", f"GPU:{card[1] or card[2]}"


def first_size(match: re.Match[str]) -> int:
    """The size of the alternative that was found."""
    groups = [group for group in match.groups() if group is not None]
    return size_of(groups[0], groups[1] if len(groups) > 1 else None)
