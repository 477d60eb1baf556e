"""Batches of rows read from a user's own arrays, in Keras' order and in the dtype that Keras would have cast the whole array to."""

from typing import Any

import numpy as np

from legroom.data.allocator import give_back
from legroom.data.buffers import Buffers
from legroom.data.groups import Reader, batches_of
from legroom.data.sizing import Sizes, array_sizes
from legroom.data.sources.arrays import ArrayColumn
from legroom.data.sources.files import memmap_column

LONG = 1 << 17  # rows of which the order takes 1 MiB


def is_plain(array: Any) -> bool:
    """Numbers in a NumPy array, the kind of which Keras takes rows as they are."""
    return isinstance(array, np.ndarray) and array.dtype.kind in "biuf" and array.dtype.isnative and array.ndim > 0


class Rows:
    """The rows of one array, floats as Keras' default ones."""

    def __init__(self, array: Any, floatx: str, buffers: Buffers) -> None:
        self.column = memmap_column(array) if isinstance(array, np.memmap) else ArrayColumn(array)
        self.dtype = np.dtype(floatx) if array.dtype.kind == "f" else array.dtype
        self.shape, self.buffers = tuple(array.shape[1:]), buffers
        self.row_bytes = int(np.prod(self.shape, dtype=np.int64)) * max(self.dtype.itemsize, array.dtype.itemsize)

    def read(self, indices: Any) -> Any:
        out = self.buffers.take((len(indices), *self.shape), self.dtype)
        if self.column.dtype == self.dtype:
            self.column.read_into(indices, out)
        else:
            rows = self.buffers.take((len(indices), *self.shape), self.column.dtype)
            self.column.read_into(indices, rows)
            out[...] = rows
        return out


def rows_for(arrays: list[Any]) -> list[Rows]:
    import keras

    floatx = keras.config.floatx()
    if floatx == "bfloat16":
        import ml_dtypes

        floatx = ml_dtypes.bfloat16
    buffers = Buffers()
    return [Rows(array, floatx, buffers) for array in arrays]


def sizes_of(rows: list[Rows], batch_size: int, ram_bytes: int) -> Sizes:
    return array_sizes(sum(one.row_bytes for one in rows), rows[0].column.length, batch_size, ram_bytes)


class OrderedRows:
    """The rows of arrays in an order that Keras gives for each epoch, several batches at a time."""

    def __init__(self, rows: list[Rows], batch_size: int, group: int) -> None:
        self.rows, self.size, self.group = rows, batch_size, group
        self.length = rows[0].column.length
        self.order: Any = np.empty(self.length, np.uint32 if self.length <= 2**32 else np.uint64)

    def begin(self, order: Any) -> int:
        """How many groups this epoch has."""
        self.order[...] = order
        return -(-self.length // (self.size * self.group))

    def read(self, number: int) -> list[Any]:
        """The rows of a group's batches, one after another."""
        if number == 0 and self.length >= LONG:
            give_back()  # TensorFlow has made this order, and is done with it
        start = number * self.size * self.group
        indices = self.order[start : start + self.size * self.group].astype(np.int64)
        return [one.read(indices) for one in self.rows]


def dataset_of_rows(orders: Any, structure: Any, rows: list[Rows], batch_size: int, ram_bytes: int) -> Any:
    """A dataset of orders, one for each epoch, as one of the rows' batches, in the structure of the arrays."""
    import tensorflow as tf
    from keras import tree

    sizes = sizes_of(rows, batch_size, ram_bytes)
    ordered = OrderedRows(rows, batch_size, sizes.group)
    shape = tree.lists_to_tuples(structure)
    specs = [tf.TensorSpec((None, *one.shape), tf.as_dtype(one.dtype)) for one in rows]

    def arranged(arrays: Any) -> Any:
        taken = iter(arrays)
        return tree.map_structure(lambda part: None if part is None else next(taken), shape)

    reader = Reader(ordered.begin, ordered.read, arranged)
    return batches_of(orders, reader, specs, batch_size, sizes)
