"""Messages that look like a lack of memory and are none: TensorFlow tries something, and goes on without it."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.sizes import SIZE, size_of

STRONG = (
    b"is benign",
    b"may be suboptimal",
    b"not a failure",
    b"system memory",
    b"by rematerialization",
    b"tcmalloc: large alloc",
    b"autotune ram budget",
)
WEAK = (b"to avoid OOM due to memory", b"freed_by_count", b"TF_FORCE_GPU_ALLOW_GROWTH")
TRIED = re.compile(rf"(?:trying|tried) to allocate {SIZE}")
ALLOCATOR = re.compile(r"Allocator \(([\w.:/-]{1,80})\)")
LARGE = re.compile(
    r"Allocation of (\d{1,20}) exceeds \d{1,3}% of (?:free )?system memory|tcmalloc: large alloc (\d{1,20}) bytes"
)
REMAT = re.compile(
    rf"reduce memory use below {SIZE}(?: \((\d{{1,20}}) bytes\))? by rematerialization; only reduced to {SIZE}(?: \((\d{{1,20}}) bytes\))?"
)


def is_harmless(text: str) -> bool:
    """Whether the allocator itself says that nothing has failed."""
    return any(
        words in text
        for words in ("not a failure", "freed_by_count", "is benign", "may be suboptimal", "autotune ram budget")
    )


def read(text: str) -> Iterator[tuple[str, Any]]:
    if is_harmless(text):
        tried, allocator = TRIED.search(text), ALLOCATOR.search(text)
        yield "harmless", size_of(tried[1], tried[2]) if tried else None
        if allocator:
            yield "warning_allocator", allocator[1]
    elif large := LARGE.search(text):
        yield "large_allocation", int(large[1] or large[2])
    elif remat := REMAT.search(text):
        wanted = int(remat[3]) if remat[3] else size_of(remat[1], remat[2])
        reached = int(remat[6]) if remat[6] else size_of(remat[4], remat[5])
        yield "rematerialized", (wanted, reached)
    elif "to avoid OOM due to memory" in text:
        yield "regions_collected", None
