"""Memory that two processes share: a file without a name, mapped by both, which goes with them. It grows as it is needed."""

import mmap
import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from legroom.data.structure import leaves, mapped

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Placed:
    """An array in a slot."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


class Slot:
    """One writes, tells the other where, and waits until it has read."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.size = 0
        self.memory: Any = None

    def put(self, batch: Any) -> tuple[int, Any]:
        """The batch written, as `Placed` in its structure, with the bytes it takes; what has no numbers stays itself."""
        size = 0
        for _, array in leaves(batch):
            size += padded(array.nbytes) if is_placed(array) else 0
        self.grow(size)
        at = 0

        def place(array: Any) -> Any:
            nonlocal at
            if not is_placed(array):
                return array
            found, at = Placed(at, array.shape, array.dtype.str), at + padded(array.nbytes)
            self.view(found)[...] = array
            return found

        return size, mapped(batch, place)

    def get(self, size: int, placed: Any) -> Any:
        """Views of what the other has put; they are the other's again with the next message."""
        self.grow(size)
        return mapped(placed, lambda leaf: self.view(leaf) if isinstance(leaf, Placed) else leaf)

    def view(self, placed: Placed) -> Any:
        count = int(np.prod(placed.shape, dtype=np.int64))
        flat = np.frombuffer(self.memory, np.dtype(placed.dtype), count, placed.offset) if count else np.empty(0)
        return flat.astype(placed.dtype, copy=False).reshape(placed.shape)

    def grow(self, size: int) -> None:
        if size > self.size:
            if os.fstat(self.file).st_size < size:
                os.ftruncate(self.file, size)
            self.memory, self.size = mmap.mmap(self.file, size), size


def is_placed(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "biufc"


def padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def slot_file() -> int:
    """A file in memory where there are such; its pages count as both processes'."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("legroom")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
