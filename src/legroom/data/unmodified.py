"""`fit(x, y)` as it is written, without the copies: `install(ram_bytes)` for a whole process, `streamed(ram_bytes)` for a while.

Keras on TensorFlow makes tensors of all arrays, which are copied once more when they are iterated. Here Keras' own code orders
an array of indices instead, by the same random numbers, and the rows are read from the user's arrays batch by batch. What Keras
casts as a whole (float64) is cast as it is read. Arrays are read where they are: one that changes while `fit` runs is seen changed.

Private names used, tested with Keras 3.15.1 and TensorFlow 2.21.0: `Dataset._inputs`, `_ZipDataset`, `ArrayDataAdapter` (`_inputs`, `_num_samples`, `_batch_size`, `_shuffle`, `_get_iterator`,
`get_tf_dataset`, `get_jax_iterator`), `TFDatasetAdapter.get_tf_dataset`, `NumpySliceable.cast`, `convert_to_sliceable`.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from legroom.data.array_batches import Rows, dataset_of_rows, is_plain, rows_for
from legroom.data.pipelines import costs, with_budget
from legroom.errors import MissingError
from legroom.units import MIB

WORTH_IT_BYTES = 16 * MIB  # smaller arrays are left to Keras
INSTALLED = "legroom_streamed"


def install(ram_bytes: int, verbose: bool = True) -> Callable[[], None]:
    """From now on arrays given to `fit`, `evaluate` and `predict` are streamed, and tf.data pipelines have a RAM budget.

    Returns the way back, which may be called once. Needs Keras to be importable. A second install replaces the first one's budget.
    """
    try:
        from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
        from keras.src.trainers.data_adapters.array_slicing import NumpySliceable
        from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter
    except ImportError as error:
        raise MissingError(
            "Keras takes arrays in another way than in the tested version (Keras 3.15.1).", "Use legroom.stream."
        ) from error
    changes = [
        (ArrayDataAdapter, "get_tf_dataset", functools.partial(tensorflow_batches, ram_bytes)),
        (ArrayDataAdapter, "get_jax_iterator", functools.partial(jax_batches, ram_bytes)),
        (TFDatasetAdapter, "get_tf_dataset", functools.partial(budgeted_dataset, ram_bytes, verbose)),
    ]
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    for (owner, name, change), (_, _, plain) in zip(changes, before, strict=True):
        setattr(owner, name, replaced(getattr(plain, INSTALLED, plain), change))
    cast = vars(NumpySliceable).get("cast")
    if cast is None:
        NumpySliceable.cast = classmethod(cast_later)

    def undo() -> None:
        for owner, name, plain in before:
            setattr(owner, name, plain)
        if cast is None and "cast" in vars(NumpySliceable):
            del NumpySliceable.cast

    return undo


@contextmanager
def streamed(ram_bytes: int, verbose: bool = True) -> Iterator[None]:
    undo = install(ram_bytes, verbose)
    try:
        yield
    finally:
        undo()


def replaced(plain: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(adapter: Any) -> Any:
        return change(plain, adapter)

    setattr(call, INSTALLED, plain)
    return call


def cast_later(_: Any, array: Any, dtype: Any) -> Any:
    """Keras casts the whole of an array here; a large one's rows are cast as they are read."""
    return array if is_worth_it([array]) else array.astype(dtype)


def is_worth_it(arrays: list[Any]) -> bool:
    return all(is_plain(array) for array in arrays) and sum(array.nbytes for array in arrays) >= WORTH_IT_BYTES


def arrays_of(adapter: Any) -> list[Any]:
    from keras import tree

    return [array for array in tree.flatten(adapter._inputs) if array is not None]


def tensorflow_batches(ram_bytes: int, plain: Callable[[Any], Any], adapter: Any) -> Any:
    """Keras' own order of indices, then the rows."""
    arrays = arrays_of(adapter)
    if not is_worth_it(arrays) or adapter._shuffle == "batch":
        return plain(adapter)
    whole = adapter._inputs
    adapter._inputs = np.zeros(1, np.int8)  # never read: only the order is taken from the pipeline over it
    try:
        indices = order_in(plain(adapter))
    finally:
        adapter._inputs = whole
    return dataset_of_rows(indices, whole, rows_for(arrays), adapter._batch_size, ram_bytes)


def order_in(dataset: Any) -> Any:
    """The orders of all rows, one for each epoch, by which Keras' pipeline slices its arrays: what the first of the two datasets
    that it zips is made from."""
    try:
        while type(dataset).__name__ != "_ZipDataset":
            (dataset,) = dataset._inputs()
        (orders,) = dataset._inputs()[0]._inputs()
    except (AttributeError, ValueError) as error:
        raise MissingError(
            "Keras slices arrays in another way than in the tested version (Keras 3.15.1).", "Use legroom.stream."
        ) from error
    return orders


def jax_batches(ram_bytes: int, plain: Callable[[Any], Any], adapter: Any) -> Any:
    """Keras' own loop over batches; it only slices, so that rows are cast here instead of the whole."""
    from keras import tree

    arrays = arrays_of(adapter)
    if not is_worth_it(arrays):
        return plain(adapter)
    rows = iter(rows_for(arrays))
    readers = tree.map_structure(lambda array: None if array is None else next(rows), adapter._inputs)

    def read(reader: Rows, indices: Any = None) -> Any:
        if isinstance(indices, slice):
            indices = np.arange(indices.start, indices.stop)
        return reader.read(indices)

    return adapter._get_iterator(read, readers)


def budgeted_dataset(ram_bytes: int, verbose: bool, plain: Callable[[Any], Any], adapter: Any) -> Any:
    import tensorflow as tf

    dataset = plain(adapter)
    if not isinstance(dataset, tf.data.Dataset):  # distributed over devices already
        return dataset
    if verbose:
        for line in costs(dataset, ram_bytes):
            print(f"legroom: {line}", file=sys.stderr)
    return with_budget(dataset, ram_bytes)
