"""The CUDA and HIP drivers that refuse, and what TensorFlow says about the card when it starts."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.sizes import SIZE, size_of

STRONG = (
    *(
        b"from device: CUDA",
        b"from device: HIP",
        b"from device: hip",
        b"OUT_OF_MEMORY",
        b"ERROR_OutOfMemory",
        b"hipErrorOutOfMemory",
    ),
    *(
        b"cudaErrorMemoryAllocation",
        b"Status: out of memory",
        b"bytes on host: CUDA",
        b"cudaMalloc failed",
        b"hipError_t(1002)",
    ),
    b"ERROR_OUT_OF_MEM",
)
WEAK = (
    *(b"MB memory", b"otalMemory:", b"Total memory:", b"Free memory:", b"deviceMemorySize:", b"memory reported:"),
    *(b"backend failed to initialize", b"bytes free, "),
)
REFUSED = re.compile(rf"failed to allocate {SIZE}(?: \((\d{{1,20}}) bytes\))? from device: (\w{{3,60}})")
ON_HOST = re.compile(r"failed to alloc(?:ate)? (\d{1,20}) bytes on host: ")
CREATED = re.compile(r"device:(\wPU:\d{1,4}) with (\d{1,9}) MB memory")
CARD = re.compile(rf"(?:totalMemory|[Tt]otal memory|deviceMemorySize|total memory reported): {SIZE}")
USAGE = re.compile(r"Memory usage: (\d{1,20}) bytes free, (\d{1,20}) bytes total")
FREE = re.compile(rf"(?:freeMemory|Free memory): {SIZE}")
STARTING = (
    "ontext",
    "implicit initialization",
    "StreamExecutor",
    "cuInit",
    "failed to initialize",
    "CtxRetain",
    "CtxCreate",
)
DRIVER_OUT = ("OUT_OF_MEMORY", "OutOfMemory", "cudaErrorMemoryAllocation")
OUT = ("OUT_OF_MEMORY", "OutOfMemory", "out of memory", "cudaErrorMemoryAllocation", "OUT_OF_MEM")


def read(text: str) -> Iterator[tuple[str, Any]]:
    if refused := REFUSED.search(text):
        yield "refused", int(refused[3]) if refused[3] else size_of(refused[1], refused[2])
    elif pinned := ON_HOST.search(text):
        yield "refused_on_host", int(pinned[1])
    elif any(word in text for word in OUT) and any(word in text for word in STARTING) and "CUBIN" not in text:
        yield "no_context", None
    elif any(word in text for word in DRIVER_OUT) and "CUBIN" not in text and "AllocAsync" not in text:
        yield "driver_out", None
    if created := CREATED.search(text):
        yield "device_limit", (created[1], int(created[2]) * 1024**2)
    if "Free memory/Total" in text:
        return
    if usage := USAGE.search(text):
        yield "card_free_bytes", int(usage[1])
        yield "card_bytes", int(usage[2])
        yield "left_at_failure", int(usage[1]) / max(1, int(usage[2]))
    if card := CARD.search(text):
        yield "card_bytes", size_of(card[1], card[2])
    if free := FREE.search(text):
        yield "card_free_bytes", size_of(free[1], free[2])
