"""Data that has no quick access by index (compressed, or in large chunks) is written once, row by row, to a scratch file.

The file has no name: it goes away with the process, however that ends.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from legroom.data.sources.files import FileColumn
from legroom.errors import InputError
from legroom.units import MIB, format_bytes

BLOCK_BYTES = 4 * MIB


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows as they are stored; `what` names them in errors."""

    length: int
    shape: tuple[int, ...]
    dtype: Any
    what: str

    @property
    def nbytes(self) -> int:
        return int(self.length * int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize)


def scratch_column(blocks: Iterator[Any], rows: Layout, where: str | Path | None) -> FileColumn:
    """The rows of all blocks, one after another."""
    nbytes, what = rows.nbytes, rows.what
    file = open_scratch(where, nbytes, what)
    try:
        written = write_blocks(file, blocks, rows.dtype)
        if written != nbytes:
            raise InputError(
                f"{what} ended early: {format_bytes(written)} of {format_bytes(nbytes)}.", "Write the file again."
            )
        column = FileColumn(file, 0, rows.length, rows.shape, rows.dtype)
    except BaseException:
        os.close(file)
        raise
    column.path = what
    return column


def open_scratch(where: str | Path | None, nbytes: int, what: str) -> int:
    folder = str(where or disk_folder())
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise InputError(f"There is no folder {folder} for scratch files.", "Give another `scratch`.") from error
    if free < nbytes + 64 * MIB:
        raise InputError(
            f"{what} takes {format_bytes(nbytes)} on disk to be read by index, and {folder} has {format_bytes(free)} left.",
            "Give another folder as `scratch`, or store the data uncompressed, row by row (.npy).",
        )
    file, path = tempfile.mkstemp(prefix="legroom-", dir=folder)
    os.unlink(path)
    return file


def disk_folder() -> str:
    """The system's folder for temporary files, or the first of a few others where that one is memory itself (tmpfs)."""
    mounted = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    for folder in (tempfile.gettempdir(), "/var/tmp", str(Path.cwd())):
        above = [str(path) for path in (Path(folder).resolve(), *Path(folder).resolve().parents)]
        kind = next((mounted[path] for path in above if path in mounted), "")
        if kind not in {"tmpfs", "ramfs"} and os.access(folder, os.W_OK):
            return folder
    return tempfile.gettempdir()


def write_blocks(file: int, blocks: Iterator[Any], dtype: Any) -> int:
    written = 0
    for block in blocks:
        rows: Any = np.ascontiguousarray(block, dtype=dtype).reshape(-1).view(np.uint8)
        left = memoryview(rows)
        while left:
            done = os.write(file, left)
            written, left = written + done, left[done:]
    return written


def rows_of_a_block(row_bytes: int) -> int:
    return max(1, BLOCK_BYTES // max(1, row_bytes))
