"""Values of different lengths in a scratch file, with where each begins in memory: eight bytes a sample."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from legroom.data.sources.options import Options
from legroom.data.sources.scratch import open_scratch, write_blocks
from legroom.errors import InputError


class RaggedColumn:
    """Lists of numbers, or pieces of text as bytes, each as long as it is."""

    def __init__(self, file: int, starts: Any, dtype: Any, text: bool, what: str) -> None:
        self.file, self.starts, self.dtype, self.text, self.what = file, starts, np.dtype(dtype), text, what
        self.length = len(starts) - 1

    def __del__(self) -> None:
        os.close(self.file)

    def sample(self, index: int) -> Any:
        start, stop = int(self.starts[index]), int(self.starts[index + 1])
        size = self.dtype.itemsize
        data = os.pread(self.file, (stop - start) * size, start * size)
        return data if self.text else np.frombuffer(data, self.dtype)

    def name(self, index: int) -> str:
        return f"{index} of {self.what}"


def ragged_columns(arrays: Iterator[Any], text: bool, length: int, what: str, options: Options) -> RaggedColumn:
    lengths: list[Any] = []
    kinds: list[Any] = []

    def parts() -> Iterator[Any]:
        from legroom.data.sources.tables import as_bytes

        for values in arrays:
            if text:
                data, sizes = as_bytes(values)
            else:
                data = values.flatten().to_numpy(zero_copy_only=False)
                sizes = np.diff(values.offsets.to_numpy())
                if data.dtype.kind not in "biuf" or values.null_count:
                    raise InputError(f"{what} has rows without numbers in them.", "Leave such rows or the column out.")
            kinds[:] = kinds or [data.dtype]
            lengths.append(sizes)
            yield np.asarray(data, kinds[0])

    file = open_scratch(options.scratch, 0, what)
    for part in parts():
        write_blocks(file, iter([part]), part.dtype)
    starts = np.zeros(length + 1, np.int64)
    np.cumsum(np.concatenate(lengths), out=starts[1:])
    options.held_bytes += starts.nbytes
    options.notes.append(f"{what} has rows of different lengths: written once to a scratch file")
    return RaggedColumn(file, starts, kinds[0], text, what)
