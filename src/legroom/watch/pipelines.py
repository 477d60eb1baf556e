"""Caches in the tf.data pipelines that are being read.

Private names used, tested with TensorFlow 2.21.0: `OwnedIterator._dataset`, `Dataset._inputs()`, `_filename`, `_batch_size`.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from legroom.watch.evidence import Cache

BATCHES = ("_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset")


def caches_of(iterators: Iterable[Any]) -> tuple[Cache, ...]:
    """The caches in RAM of all pipelines that these iterators read."""
    return tuple({cache for iterator in iterators for cache in walk(getattr(iterator, "_dataset", None), 1)})


def walk(dataset: Any, per_step: int) -> Iterator[Cache]:
    if dataset is None:
        return
    kind = type(dataset).__name__
    if kind in BATCHES:
        per_step *= int(dataset._batch_size)
    elif kind == "CacheDataset" and not dataset._filename.numpy():
        count = int(dataset.cardinality())
        yield Cache(count if count >= 0 else None, per_step, element_bytes(dataset.element_spec, batch_below(dataset)))
    for source in dataset._inputs():
        yield from walk(source, per_step)


def batch_below(dataset: Any) -> int | None:
    """The batch size of what goes into a cache, where it takes whole batches."""
    while dataset is not None:
        if type(dataset).__name__ in BATCHES:
            return int(dataset._batch_size)
        dataset = next(iter(dataset._inputs()), None)
    return None


def element_bytes(spec: Any, batch: int | None = None) -> int | None:
    """The bytes of an element, None where a side of it is not known; a batch is taken for a whole one."""
    import tensorflow as tf

    total = 0
    for part in tf.nest.flatten(spec):
        shape = getattr(part, "shape", None)
        if shape is None or shape.rank is None or part.dtype == tf.string:
            return None
        sides: list[Any] = [batch if at == 0 and side is None else side for at, side in enumerate(shape.as_list())]
        if None in sides:
            return None
        total += math.prod(sides) * int(part.dtype.size)
    return total
