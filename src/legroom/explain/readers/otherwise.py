"""Limits that are not memory's and sound like them: a message's size, a disk, a quota, files, threads, registers, a request for nothing."""

import re
from collections.abc import Iterator
from typing import Any

LIMITS = {
    "larger than max": "A message of gRPC is larger than it may be.",
    "to send message of size": "A message of gRPC is larger than it may be.",
    "Quota exceeded": "A quota is used up.",
    "uota exceeded for": "A quota is used up.",
    "No space left on device": "A disk is full.",
    "Disk quota exceeded": "A disk's quota is used up.",
    "Too many open files": "Too many files are open.",
    "can't start new thread": "No more threads may be started.",
    "pthread_create failed": "No more threads may be started.",
    "Resource temporarily unavailable": "No more processes or threads may be started.",
    "too many resources requested for launch": "A kernel wants more registers than there are.",
    "illegal memory access": "A kernel wrote to a wrong address.",
    "memory corruption": "A program has overwritten its own memory.",
    "static TLS block": "A library was loaded too late to have thread-local memory.",
    "object header message is too large": "An attribute of HDF5 is larger than 64 kB.",
}
NOTHING = re.compile(
    r"(?i)\b(?:tried|trying|attempt\w{0,4}|request|fail\w{0,3}|unable) to allocate 0(?:\.0{0,3})? ?(?:bytes?|B)\b"
)
STRONG = (*(phrase.encode() for phrase in LIMITS), b"allocate 0 ", b"allocate 0B", b"allocate 0.0")
SHARED = re.compile(r"/dev/shm|shared memory|/torch_|psm_")
MEMORY_QUOTA = re.compile(r"(?i)memory quota|uota exceeded.{0,40}memory")


def read(text: str) -> Iterator[tuple[str, Any]]:
    if NOTHING.search(text):
        yield "not_memory", "0 bytes were asked for and refused: that is a fault of the framework."
        return
    limit = next((why for phrase, why in LIMITS.items() if phrase in text), None)
    if limit is None or MEMORY_QUOTA.search(text):
        return
    if "No space left" in text and SHARED.search(text):
        yield "oom", "host"
    else:
        yield "not_memory", limit
