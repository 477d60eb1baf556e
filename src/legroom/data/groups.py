"""A dataset of batches that Python reads: TensorFlow's threads call back for a group of them at a time, and cut it natively.

The arrays that are read are aligned, and TensorFlow takes them as they are (tensorflow/python/lib/core/py_func.cc): no copy. Every
function in a pipeline costs milliseconds whenever an iterator is made, so that there are as few of them as can be.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from legroom.data.sizing import Sizes

NUMBER_BITS = 32  # of a group, below the number of its run


@dataclass(frozen=True, slots=True)
class Reader:
    """What Python does: `begin` an epoch and say how many groups it has (it is given what `started` yields), then read one of
    them, the rows of several batches one after another, by their number in the epoch. `arranged` makes a structure of a list."""

    begin: Callable[..., int]
    read: Callable[[int], list[Any]]
    arranged: Callable[[Sequence[Any]], Any]


def batches_of(started: Any, reader: Reader, specs: Sequence[Any], batch_size: int, sizes: Sizes) -> Any:
    """Batches of `specs`: an epoch of them for each element of `started`."""
    import numpy as np
    import tensorflow as tf

    run = 0

    def begin(*given: Any) -> tuple[Any, Any]:
        nonlocal run
        run += 1
        first, count = run << NUMBER_BITS, reader.begin(*given)
        return np.int64(first), np.int64(first + count)

    def read(code: Any) -> list[Any]:
        if int(code) >> NUMBER_BITS != run:  # of an iteration that was given up
            raise StopIteration
        return reader.read(int(code) & (1 << NUMBER_BITS) - 1)

    def groups(*given: Any) -> Any:
        return tf.data.Dataset.range(*tf.numpy_function(begin, given, [tf.int64, tf.int64]))

    def group(code: Any) -> Any:
        arrays = tf.numpy_function(read, [code], [spec.dtype for spec in specs])
        for array, spec in zip(arrays, specs, strict=True):
            array.set_shape(spec.shape)
        return reader.arranged(arrays)

    dataset = started.flat_map(groups).map(group, num_parallel_calls=sizes.threads, deterministic=True)
    if sizes.ahead:
        dataset = dataset.prefetch(sizes.ahead)
    if sizes.group > 1:
        dataset = dataset.rebatch(batch_size)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return iterated_once(dataset.with_options(options), lambda: run)


def iterated_once(dataset: Any, runs: Callable[[], int]) -> Any:
    """The same dataset, of which an iterator that nothing was taken from is handed out again.

    Keras 3.15 makes two for each epoch, and uses one. Distribution strategies make theirs in another way.
    """
    kind, plain = type(dataset), type(dataset).__iter__
    last: tuple[Callable[[], Any], int] = (lambda: None, -1)  # not held: what it has read ahead would stay with it

    def iterate(self: Any) -> Any:
        nonlocal last
        iterator = last[0]() if last[1] == runs() else None
        if iterator is None:
            iterator = plain(self)
            last = weakref.ref(iterator), runs()
        return iterator

    dataset.__class__ = type(kind.__name__, (kind,), {"__iter__": iterate})
    return dataset
