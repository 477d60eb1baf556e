"""Rows of fixed size in a file, read with `pread`: `.npy`, `np.memmap`, stored `.npz` members, contiguous HDF5, scratch files.

A mapped file's pages count as the process's own memory for as long as they stay mapped; what `pread` brings is only the batch.
"""

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from legroom.data.buffers import Buffers
from legroom.data.sources.arrays import PIECE_BYTES, ArrayColumn, in_a_row, rows_of_a_piece
from legroom.data.sources.collating import narrow
from legroom.errors import InputError


class FileColumn:
    """Rows one after another from `offset` on. The file stays open, so that it cannot vanish from under an epoch."""

    def __init__(self, path: str | Path | int, offset: int, length: int, shape: tuple[int, ...], dtype: Any) -> None:
        self.path = "a scratch file" if isinstance(path, int) else str(path)
        self.file = path if isinstance(path, int) else os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self.offset, self.length, self.shape, self.stored = offset, length, shape, np.dtype(dtype)
        self.dtype = narrow(self.stored)
        self.row_bytes = int(np.prod(shape, dtype=np.int64)) * self.stored.itemsize
        self.pieces = Buffers()
        self.reading_bytes = 0 if self.stored == self.dtype or self.row_bytes <= PIECE_BYTES else self.row_bytes
        there = os.fstat(self.file).st_size
        if there < offset + length * self.row_bytes:
            raise InputError(
                f"{self.path} is cut off: {offset + length * self.row_bytes:,} bytes belong to it, {there:,} are there.",
                "Write the file again.",
            )

    def __del__(self) -> None:
        if hasattr(self, "file"):
            os.close(self.file)

    @property
    def nbytes(self) -> int:
        return int(self.length * self.row_bytes)

    def read_into(self, indices: Any, out: Any) -> None:
        if self.stored == self.dtype:
            self.read_rows(indices, memoryview(out.reshape(-1).view(np.uint8)))
            return
        step = rows_of_a_piece(self.row_bytes)
        for start in range(0, len(indices), step):
            piece = indices[start : start + step]
            rows = self.pieces.take((len(piece), *self.shape), self.stored)
            self.read_rows(piece, memoryview(rows.reshape(-1).view(np.uint8)))
            out[start : start + step] = rows
            del rows  # free for the next piece

    def read_rows(self, indices: Any, target: memoryview) -> None:
        size = self.row_bytes
        if size == 0:
            return
        if in_a_row(indices):
            self.read_at(int(indices[0]), target)
            return
        for place, index in enumerate(indices.tolist()):
            self.read_at(index, target[place * size : (place + 1) * size])

    def read_at(self, index: int, target: memoryview) -> None:
        at, done = self.offset + index * self.row_bytes, 0
        while done < len(target):
            try:
                got = os.preadv(self.file, [target[done:]], at + done)
            except OSError as error:
                raise InputError(
                    f"Sample {self.name(index + done // self.row_bytes)} could not be read: {error.strerror}.",
                    "No step has seen a part of its batch. Look at the disk, then go on from the stream's state.",
                ) from error
            if got == 0:
                raise InputError(
                    f"Sample {self.name(index + done // self.row_bytes)} is not there any more: the file has become shorter.",
                    "No step has seen a part of its batch. Restore the file, then go on from the stream's state.",
                )
            done += got

    def name(self, index: int) -> str:
        return f"{index} of {self.path}"


def npy_column(path: str | Path) -> Any:
    """A `.npy` file's rows."""
    try:
        with open(path, "rb") as file:
            shape, fortran, dtype = read_header(file)
            offset = file.tell()
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no readable .npy file: {error}.", "Write it with np.save.") from error
    if not shape or dtype.hasobject:
        raise InputError(
            f"{path} has {'Python objects' if shape else 'a single value'} in it, and no rows to read.",
            "Save an array of numbers with the samples along the first axis.",
        )
    if fortran:
        return memmap_column(np.load(path, mmap_mode="r"))
    return FileColumn(path, offset, shape[0], tuple(shape[1:]), dtype)


def read_header(file: Any) -> tuple[tuple[int, ...], bool, Any]:
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    if version == (1, 0):
        return npy.read_array_header_1_0(file)
    return npy.read_array_header_2_0(file)


def memmap_column(array: Any) -> Any:
    """An `np.memmap`, or a part of one, read from its file where its rows lie in it one after another."""
    whole = getattr(array, "_mmap", None)
    named = getattr(array, "filename", None)
    plain = array.flags.c_contiguous and not array.dtype.hasobject
    if whole is None or named is None or array.mode == "c" or not plain:
        return MappedColumn(array)
    start = np.frombuffer(whole, dtype=np.uint8).ctypes.data
    mapped_from = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    offset = mapped_from + array.ctypes.data - start
    return FileColumn(Path(named), offset, int(array.shape[0]), tuple(array.shape[1:]), array.dtype)


class MappedColumn(ArrayColumn):
    """A mapped array that `pread` cannot read in rows; its pages are let go after each batch, where nothing is lost by it."""

    def read_into(self, indices: Any, out: Any) -> None:
        super().read_into(indices, out)
        whole = getattr(self.array, "_mmap", None)
        if whole is not None and getattr(self.array, "mode", "c") == "r":
            whole.madvise(mmap.MADV_DONTNEED)
