"""Arrays that are in memory already: never copied, only their rows are."""

from typing import Any

import numpy as np

from legroom.data.sources.collating import narrow


class ArrayColumn:
    """The rows of an array."""

    def __init__(self, array: Any, label: str = "") -> None:
        self.array, self.label = array, label
        self.length, self.shape = int(array.shape[0]), tuple(array.shape[1:])
        self.dtype = narrow(array.dtype)
        row = int(np.prod(self.shape, dtype=np.int64)) * array.dtype.itemsize
        self.direct = array.dtype == self.dtype and array.flags.c_contiguous
        self.reading_bytes = 0 if self.direct else row

    def read_into(self, indices: Any, out: Any) -> None:
        if in_a_row(indices):
            out[...] = self.array[indices[0] : indices[0] + len(indices)]
        elif self.direct:  # `take` would first copy the whole of an array that is not contiguous
            np.take(self.array, indices, axis=0, out=out, mode="clip")
        else:
            out[...] = self.array[indices]

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
