"""Batches of rows read from a user's own arrays, in the dtype that Keras would have cast the whole array to."""

import os
from typing import Any

import numpy as np

from legroom.data.buffers import Buffers
from legroom.data.sizing import Need, Sizes, sizes_for
from legroom.data.sources.arrays import ArrayColumn
from legroom.data.sources.files import memmap_column
from legroom.errors import InputError


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
            rows = np.empty((len(indices), *self.shape), self.column.dtype)
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
    sample = sum(one.row_bytes for one in rows)
    try:
        return sizes_for(Need(sample, batch_size), ram_bytes, os.cpu_count() or 1)
    except InputError:  # the script's batch is what it is: one at a time, as small as that can be
        return Sizes(1, 1, 0, 2 * sample * batch_size)


def dataset_of_rows(indices: Any, structure: Any, rows: list[Rows], batch_size: int, ram_bytes: int) -> Any:
    """A dataset of index batches as one of the rows, in the structure of the arrays."""
    import tensorflow as tf
    from keras import tree

    sizes = sizes_of(rows, batch_size, ram_bytes)
    shape = tree.lists_to_tuples(structure)

    def read(batch: Any) -> list[Any]:
        return [one.read(batch) for one in rows]

    def fetch(batch: Any) -> Any:
        arrays = tf.numpy_function(read, [batch], [tf.as_dtype(one.dtype) for one in rows])
        for array, one in zip(arrays, rows, strict=True):
            array.set_shape((batch.shape[0], *one.shape))
        taken = iter(arrays)
        return tree.map_structure(lambda part: None if part is None else next(taken), shape)

    dataset = indices.map(fetch, num_parallel_calls=sizes.threads, deterministic=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    options.autotune.enabled = False
    return dataset.with_options(options).prefetch(max(1, min(sizes.ahead, 4)))
