"""What nobody has written a reader for: words for memory and words for failing in one line, of a device or of the host.

It is asked last, and only about lines that no other reader has understood. Source code and advice speak of memory, too, and are passed over.
"""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.readers.messages import sized, sizes

STRONG = (
    *(b"ut of mem", b"UT OF MEM", b"ut Of Mem", b"t-of-mem", b"UT_OF_", b"utOf", b"f GPU mem", b"f device mem", b"OOM"),
    *(
        b"ut of application mem",
        b"ut of RAM",
        b"ut of VRAM",
        b"f system mem",
        b"f video mem",
        b"f host mem",
        b"f CPU mem",
    ),
    *(
        b"nough memory",
        b"nough free memory",
        b"nough GPU",
        b"nough video",
        b"nough RAM",
        b"nough VRAM",
        b"nough system",
    ),
    *(
        b"nsufficient mem",
        b"nsufficient Mem",
        b"nsufficient GPU",
        b"nsufficient system mem",
        b"ow on memory",
        b"more memory",
    ),
    *(
        b"o alloc",
        b"not allocate",
        b"t allocate",
        b"be allocated",
        b"llocation failed",
        b"lloc failed",
        b"llocation still failed",
    ),
    *(
        b"emory limit",
        b"emory exhausted",
        b"emory quota",
        b"emory budget",
        b"emory capacity",
        b"emory is full",
        b"running beyond",
        b"llocation failure",
    ),
    *(name.encode() for name in ("显存", "内存不足", "内存溢出", "内存不够", "メモリ不足", "메모리 부족")),
    *(
        *(b" fit in", b" fit on", b" fit within", b"xhausted"),
        b"ALLOC_FAIL",
        b"LLOCATION_FAIL",
        b"NOMEM",
        b"NO_MEMORY",
        b"AllocFailed",
        b"lloc_failed",
        b"memory_error",
        b"OutOfMem",
    ),
)
OUT = re.compile(
    r"(?i:out[ _-]of[ _-](?:(?:gpu|device|host|cpu|system|video|application|physical|virtual|shared|heap|cuda|unified)[ _-])?(?:mem(?:ory|\b)|v?ram\b))"
    r"|[oO]utOf\w{0,12}Mem|(?:显存|内存)(?:不足|溢出|不够)|爆显存|メモリ不足|메모리 부족"
)
LITTLE = re.compile(
    r"(?i)\b(?:not enough|insufficient|lack of|no more|low on|all available|exhausted) (?:\w{1,12} )?(?:\w{1,12} )?(?:memory|v?ram)\b"
    r"|(?i:(?:not|n't|too large to|too big to|cannot|unable to) fit (?:in|on|within)(?:to)? (?:\w{1,12} )?(?:\w{1,12} )?(?:memory|v?ram)\b)"
)
REFUSED = re.compile(
    r"(?i)(?:fail\w{0,3}|unable|could not|cannot|can't|couldn't|error|impossible)(?: to| be| in| while)? (?:re)?alloc"
    r"|alloc\w{0,8} (?:\S{1,30} ){0,8}?(?:failed|failure|could not|not possible|refused|denied)|not be allocated"
)
EXCEEDED = re.compile(
    r"(?i)exceed\w{0,4} (?:\S{1,20} ){0,6}?memory|beyond (?:\w{1,12} )?memory|memory (?:\S{1,20} ){0,4}?(?:exceeded|exhausted|is full\b)"
)
MARKS = re.compile(r"ALLOC(?:ATION)?_?FAIL|\bENOMEM\b|NO_MEMORY|(?:AllocFailed|alloc_failed)\b|\bOOM(?=\b|[A-Z_])")
OF_MEMORY = re.compile(r"(?i)mem(?:ory)?\b|malloc|\bbytes?\b|\d ?[KMG]i?B\b|buffer|tensor|array|vector|heap|\bregion\b")
DEVICE = re.compile(
    r"(?i:\bgpus?\b|cuda|\bhip\b|rocm|vram|video mem|device.{0,3}mem|on device|\bhbm\b|\btpus?\b|\b[nxh]pu\b|\bmps\b|metal|iogpu|directml|\bdml|d3d1"
    r"|opencl|\bcl_|vulkan|\bvk_|webgl|texture|nccl|tensorrt|\[trt\]|\bnrt|neuron|\bze_|\bur_|\bpi_|sycl|\bhsa_|tensor\b|gpusolver|bfc|显存|ResourceExhausted)"
    r"|\bcu[A-Z]\w{3,20}|\bhip[A-Z]\w{2,20}|\bcl[A-Z]\w{3,20}|\bvk[A-Z:]"
)
PLAIN = re.compile(r"(?:^|: |\s)out of memory\b")  # as CUDA's runtime spells it, and little else
HOST = re.compile(
    r"(?i)\b(?:heap|runtime|java\w{0,12}|node|worker|container|job|pod|process|kernel|session|notebook|system|swap|ram|virtual|malloc|mmap|fork|python"
    r"|script|instance|machine|server|replica|task|executor|driver|host|cpu|dyno|quota|lambda|compiler|cc1\w{0,6}|application|mkl|openblas|shm)\b"
)
CODE = re.compile(
    r"in str\(|^[\s>\d-]{0,40}(?:except|raise|if|elif|assert|print|def|class|return|import|with|for|while|#|//|/\*|\* )\b|#.{0,40}$|\"\"\""
)
ADVICE = re.compile(
    r"(?i)\b(?:avoid\w{0,4}|prevent\w{0,4}|if (?:you|your|the|it|there|this|we|not)|in case|may|might|can (?:lead|cause|result)|could (?:lead|cause|run)"
    r"|will|would|without|instead|reduc\w{1,4}|how|help\w{0,4}|handl\w{1,4}|to fix|doesn.t|does not|never|until|risk)\b"
)
AFTER = re.compile(r"(?i)happens|=(?:true|false|\d)")
ASKED = re.compile(
    rf"(?i:alloc\w{{0,8}}|requested|request for|need(?:s|ed)?|of size:?)[^\d\n]{{0,30}}?{sized('failed_bytes')}"
)


def read(text: str) -> Iterator[tuple[str, Any]]:
    found = failing(text)
    if found is None or CODE.search(text) or ADVICE.search(text[: found.start()].rsplit(". ", 1)[-1][-60:]):
        return
    if AFTER.match(text[found.end() :].lstrip(" _")[:12]):
        return
    yield "oom", "device_said" if is_of_device(text) else "host_said"
    asked = ASKED.search(text)
    if asked is not None and (asked["failed_bytes_unit"] or "of size" in asked[0]):
        yield from sizes(asked)


def failing(text: str) -> re.Match[str] | None:
    for pattern in (OUT, LITTLE, MARKS, EXCEEDED):
        if found := pattern.search(text):
            return found
    return REFUSED.search(text) if OF_MEMORY.search(text) else None


def is_of_device(text: str) -> bool:
    """By the names of devices and of their makers' calls; else by who says that it is the host."""
    if DEVICE.search(text):
        return True
    return bool(PLAIN.search(text)) and not HOST.search(text)
