"""Memory that batches are read into, used again when nobody holds it any more.

TensorFlow and JAX take an array that begins at a multiple of 64 bytes as it is, without a copy, and hold the array for as long
as they use it; so does a loop that keeps a batch. A buffer is free when only the pool knows it. Without the pool, each batch
would be new memory, which the kernel must first clear and which the C library does not always give back. Large buffers are mapped
from the kernel: the C library would place them in the arena of whichever thread came first, between things that are freed later.
"""

import mmap
import sys
import threading
from typing import Any

import numpy as np

ALIGNMENT = 64
SPARE = 64  # buffers of sizes that nothing asks for, as ragged batches leave behind
MAPPED_BYTES = 64 * 1024


class Buffers:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: list[Any] = []

    def take(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array of that shape; what it holds is undefined."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        with self.lock:
            memory = self.free(size)
            start = -memory.ctypes.data % ALIGNMENT
            return memory[start : start + size].view(dtype).reshape(shape)

    def free(self, size: int) -> Any:
        unfit = None
        for position in range(len(self.known)):
            if holders(self.known, position) <= ONLY_THE_POOL:
                if size <= self.known[position].nbytes - ALIGNMENT <= 2 * size + 4096:
                    return self.known[position]
                unfit = position
        if unfit is not None and len(self.known) > SPARE:
            del self.known[unfit]
        made = memory_of(size + ALIGNMENT)
        self.known.append(made)
        return made

    def clear(self) -> None:
        with self.lock:
            self.known.clear()


def memory_of(size: int) -> Any:
    if size < MAPPED_BYTES:
        return np.empty(size, dtype=np.uint8)
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8)


def holders(known: list[Any], position: int) -> int:
    return sys.getrefcount(known[position])


ONLY_THE_POOL = holders([np.empty(1)], 0)  # counted, not assumed: Python versions differ in it
