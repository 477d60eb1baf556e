"""The CUDA and HIP drivers that refuse, and what TensorFlow says about the card when it starts."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.readers.messages import sized, sizes
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
    *(
        b"ut of memory",
        b"ERROR_OUT_OF_MEM",
        b"cuMemHostAlloc",
        b"cuMemAlloc",
        b"cudaMallocHost",
        b"cudaHostAlloc",
        b"== cudaSuccess (2",
    ),
)
WEAK = (
    *(b"MB memory", b"otalMemory:", b"Total memory:", b"Free memory:", b"deviceMemorySize:", b"memory reported:"),
    *(b"backend failed to initialize", b"bytes free, ", b"MiB / ", b"MiB/", b"GiB / "),
)
BYTES = r"(?: \((\d{1,20}) bytes\))?"
REFUSED = re.compile(rf"failed to allocate {SIZE}{BYTES} from device: \w{{3,60}}")
REFUSED_NOW = re.compile(rf"Failed to allocate device memory of {SIZE}{BYTES}: \w{{3,60}}")  # JAX from 0.10 on
ALLOCATING = re.compile(rf"allocat\w{{1,5}} {SIZE}")
ON_HOST = re.compile(r"failed to alloc(?:ate)? (\d{1,20}) bytes on host: ")
CREATED = re.compile(r"device:(\wPU:\d{1,4}) with (\d{1,9}) MB memory")
CARD = re.compile(rf"(?:totalMemory|[Tt]otal memory|deviceMemorySize|total memory reported): {SIZE}")
USAGE = re.compile(r"Memory usage: (\d{1,20}) bytes free, (\d{1,20}) bytes total")
FREE = re.compile(rf"(?:freeMemory|Free memory): {SIZE}")
SMI = re.compile(rf"{sized('used')} ?/ ?{sized('total')}(?: used\b| \|)")  # nvidia-smi, and those who quote it
STARTING = (
    "ontext",
    "implicit initialization",
    "StreamExecutor",
    "cuInit",
    "failed to initialize",
    "CtxRetain",
    "CtxCreate",
)
ON_HOST_CALLS = ("cuMemHostAlloc", "cudaMallocHost", "cudaHostAlloc", "hipHostMalloc", "cuMemHostRegister")
OWN_CALLS = re.compile(  # a program without a pool of its own asks the driver for each tensor
    r"cuMemAlloc(?!Async|Host)|cudaMalloc(?!Async|Host)|cudaErrorMemoryAllocation|cudaSuccess \(2 vs|hipErrorOutOfMemory|hipErrorMemoryAllocation"
)
CONTEXT_ON = re.compile(r"\b(?:GPU:|device (?:ordinal )?)(\d{1,3})\b")
NO_CARD_HAS = 2**50  # a number below zero, printed as if it were not
BEGINS = re.compile(
    r"(?i)context creation|creat\w{1,3} (?:a |the )?(?:cuda )?context|initiali[sz]\w{1,5} (?:the )?gpu|SetDevice"
)
DRIVER_OUT = re.compile(r"(?:CUDA|HIP|hip|ERROR)\w{0,8}_OUT_OF_MEM|ERROR_OutOfMemory|Status: out of memory")
OUT = ("OUT_OF_MEMORY", "OutOfMemory", "out of memory", "cudaErrorMemoryAllocation", "OUT_OF_MEM")


def is_at_start(text: str) -> bool:
    """Whether the card had no room even for a context."""
    if not any(word in text for word in OUT) or "CUBIN" in text or "Tried to allocate" in text:
        return False
    return bool(BEGINS.search(text)) or (is_of_driver(text) and any(word in text for word in STARTING))


def is_of_driver(text: str) -> bool:
    return any(word in text for word in (*OUT[:2], *OUT[3:])) or "tatus: out of memory" in text


def read(text: str) -> Iterator[tuple[str, Any]]:
    if refused := REFUSED.search(text) or REFUSED_NOW.search(text):
        yield "refused", int(refused[3]) if refused[3] else size_of(refused[1], refused[2])
    elif pinned := ON_HOST.search(text):
        yield "refused_on_host", int(pinned[1])
    elif any(word in text for word in OUT) and any(word in text for word in ON_HOST_CALLS):
        yield "refused_on_host", None
    elif any(word in text for word in OUT) and OWN_CALLS.search(text) and "from device" not in text:
        yield "oom", "device"
        if allocating := ALLOCATING.search(text):
            yield "failed_bytes", size_of(allocating[1], allocating[2])
    elif is_at_start(text):
        on = CONTEXT_ON.search(text)
        yield "no_context", on and f"GPU:{on[1]}"
    elif DRIVER_OUT.search(text) and "CUBIN" not in text and "AllocAsync" not in text:
        yield "driver_out", None
    if created := CREATED.search(text):
        yield "device_limit", (created[1], int(created[2]) * 1024**2)
    if "Free memory/Total" not in text:
        yield from card_of(text)


def card_of(text: str) -> Iterator[tuple[str, Any]]:
    """What the card has and what of it is free. nvidia-smi's table is no sign of others: the run itself may be in it."""
    if usage := USAGE.search(text):
        yield "card_free_bytes", int(usage[1])
        yield "card_bytes", int(usage[2])
        yield "left_at_failure", int(usage[1]) / max(1, int(usage[2]))
    if smi := SMI.search(text):
        said = dict(sizes(smi))
        yield "smi_bytes", said["total"]
        yield "smi_free_bytes", max(0, said["total"] - said["used"])
    if (card := CARD.search(text)) and size_of(card[1], card[2]) < NO_CARD_HAS:
        yield "card_bytes", size_of(card[1], card[2])
    if free := FREE.search(text):
        yield "card_free_bytes", size_of(free[1], free[2])
