"""TensorFlow's BFC allocator: the request that failed, and the dump of its bins, regions and chunks (bfc_allocator.cc, since 1.0).

Sizes were plain numbers until 2.5 or so and are rounded to `4.00GiB` since; chunks and regions are exact in all of them.
"""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.readers.lookalikes import is_harmless
from legroom.explain.sizes import SIZE, size_of

STRONG = (
    b"ran out of memory trying",
    b"Ran out of memory trying",
    b"AllocAsync failed",
    b"BFCAllocator dump",
    b"in-use chunks",
    *(b"Chunk State", b"Chunks of size", b"total_region_allocated_bytes_"),
)
WEAK = (
    *(
        b"InUse at",
        b"Free at",
        b"Free  at",
        b"Chunk at",
        b"Next region of size",
    ),
    *(b"Total size in pool", b"Requested Size:", b"Stats:"),
    *(b"Limit:", b"InUse:", b"MaxInUse:", b"NumAllocs:", b"MaxAllocSize:", b"LargestFreeBlock:", b"Free memory/Total"),
    *(b"requested by op", b"memory_limit_:", b"Allocator ("),
)
ASKED = re.compile(rf"(?:Allocator \(([\w.:/-]{{1,80}})\) )?[rR]an out of memory trying to allocate {SIZE}")
OF_ALLOCATOR = re.compile(r"Allocator \(([\w.:/-]{1,80})\)")
ROUNDED = re.compile(r"\(rounded to (\d{1,20})\)")
BY_OP = re.compile(r"requested by op ([^\s\]]{1,400})")
ASYNC = re.compile(r"(?:([\w.-]{1,60}) )?cu\w{0,8}AllocAsync failed to allocate (\d{1,20}) bytes")
ASYNC_FREE = re.compile(r"Free memory/Total memory: (\d{1,20})/(\d{1,20})")
BIN_FOR = re.compile(rf"Bin for {SIZE} was ")  # what was asked for, rounded up to 256 bytes
DUMP = re.compile(r"BFCAllocator dump for ([\w.:/-]{1,80})")
CHUNK = re.compile(r"\b(InUse|Free|Chunk) {1,4}at (?:0x)?[0-9a-fA-F]{1,20}(?: next \d{1,20})? of size (\d{1,20})")
CHUNKS = re.compile(r"(\d{1,12}) Chunks of size (\d{1,20}) totalling")
STATE = re.compile(rf"  Size: {SIZE} \| Requested Size: [^|]{{1,40}}\| in_use: 0")
REGION = re.compile(r"Next region of size (\d{1,20})")
TOTAL = re.compile(rf"Sum Total of in-use chunks: {SIZE}")
IN_POOL = re.compile(rf"(?:Total size in pool|total_region_allocated_bytes_): {SIZE}")
LIMIT = re.compile(rf"memory_limit_: {SIZE}")
NAMED = "(Limit|InUse|MaxInUse|NumAllocs|MaxAllocSize|LargestFreeBlock)"
STAT = re.compile(rf"^\W{{0,8}}{NAMED}:\s{{1,60}}{SIZE}\s{{0,8}}$")
STAMPED_STAT = re.compile(rf"[\s\]|]{NAMED}:\s{{4,60}}{SIZE}\s{{0,8}}$")  # a logger has put something before it
IN_LINE_STAT = re.compile(rf"Stats: {{0,4}}Limit:\s{{1,60}}{SIZE}")


def read(text: str) -> Iterator[tuple[str, Any]]:
    if chunk := CHUNK.search(text):
        yield ("hole" if chunk[1] == "Free" else "chunk"), int(chunk[2])
    elif chunks := CHUNKS.search(text):
        yield "chunks", (int(chunks[2]), int(chunks[1]))
    elif stat := STAT.match(text) or STAMPED_STAT.search(text):
        yield f"stat_{stat[1]}", size_of(stat[2], stat[3])
    elif asked := ASKED.search(text):
        if not is_harmless(text):
            yield from request(text, asked)
    else:
        yield from rest(text)


def request(text: str, asked: re.Match[str]) -> Iterator[tuple[str, Any]]:
    rounded = ROUNDED.search(text)
    yield "oom", "pool"
    yield "failed_bytes", int(rounded[1]) if rounded else size_of(asked[2], asked[3])
    if asked[1]:
        yield "allocator", asked[1]
    if op := BY_OP.search(text):
        yield "op", op[1]


def rest(text: str) -> Iterator[tuple[str, Any]]:
    """The lines that come once in a dump."""
    if asynchronous := ASYNC.search(text):
        yield "oom", "pool"
        yield "failed_bytes", int(asynchronous[2])
        if asynchronous[1]:
            yield "allocator", asynchronous[1]
    elif bin_for := BIN_FOR.search(text):
        yield "bin_for", size_of(bin_for[1], bin_for[2])
    elif dump := DUMP.search(text):
        yield "dump", dump[1]
    elif region := REGION.search(text):
        yield "region", int(region[1])
    elif total := TOTAL.search(text):
        yield "in_use_total", size_of(total[1], total[2])
    elif pooled := IN_POOL.search(text):
        yield "reserved", size_of(pooled[1], pooled[2])
        if limit := LIMIT.search(text):
            yield "stat_Limit", size_of(limit[1], limit[2])
    elif limit := IN_LINE_STAT.search(text):
        yield "stat_Limit", size_of(limit[1], limit[2])
    elif state := STATE.search(text):
        yield "rough_hole", size_of(state[1], state[2])
    elif (allocator := OF_ALLOCATOR.search(text)) and not is_harmless(text):
        yield "allocator", allocator[1]
    if free := ASYNC_FREE.search(text):
        yield "driver_free", (int(free[1]), int(free[2]))
