"""Arrays that are in memory already: never copied, only their rows are."""

from typing import Any

import numpy as np

from legroom.data.sources.collating import narrow

PIECE_BYTES = 64 * 1024  # that are converted at a time


class ArrayColumn:
    """The rows of an array."""

    def __init__(self, array: Any, label: str = "") -> None:
        self.array, self.label = array, label
        self.length, self.shape = int(array.shape[0]), tuple(array.shape[1:])
        self.dtype = narrow(array.dtype)
        self.row_bytes = int(np.prod(self.shape, dtype=np.int64)) * array.dtype.itemsize
        self.direct = array.dtype == self.dtype and array.flags.c_contiguous
        self.reading_bytes = 0

    def read_into(self, indices: Any, out: Any) -> None:
        if in_a_row(indices):
            out[...] = self.array[indices[0] : indices[0] + len(indices)]
        elif self.direct:  # `take` would first copy the whole of an array that is not contiguous
            np.take(self.array, indices, axis=0, out=out, mode="clip")
        else:
            step = rows_of_a_piece(self.row_bytes)
            for start in range(0, len(indices), step):
                piece = indices[start : start + step]
                out[start : start + step] = self.array[piece if step > 1 else slice(piece[0], piece[0] + 1)]

    def name(self, index: int) -> str:
        return f"{index}{self.label}"


class ValuesColumn:
    """A list of samples of any shape beside other columns."""

    def __init__(self, values: Any, label: str = "") -> None:
        self.values, self.label, self.length = values, label, len(values)

    def sample(self, index: int) -> Any:
        return self.values[index]

    def name(self, index: int) -> str:
        return f"{index}{self.label}"


def in_a_row(indices: Any) -> bool:
    return bool(
        len(indices)
        and indices[-1] - indices[0] == len(indices) - 1
        and (len(indices) < 3 or np.all(np.diff(indices) == 1))
    )


def rows_of_a_piece(row_bytes: int) -> int:
    """Rows that are converted together: as much as stays in the cache, so that no second batch is held for it."""
    return max(1, PIECE_BYTES // max(1, row_bytes))
