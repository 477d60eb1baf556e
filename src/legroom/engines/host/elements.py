"""The size of one element of a tf.data pipeline, from its spec: bytes with bounds, and how many tensors it has.

What a spec leaves open (a dimension, the length of a string) is bounded and, if a sample is at hand, taken from that.
Tested with TensorFlow 2.21.
"""

from collections.abc import Iterable
from math import prod
from typing import Any

from legroom.engines.host.span import NOTHING, Span, exactly, ordered

OPEN_DIMENSION = Span(1, 1, 1024)  # a dimension that nobody told
OPEN_STRING = Span(0, 64, 64 * 1024)  # the bytes of a string that nobody has seen
STRING_BYTES = 24  # TensorFlow's string object; up to 22 bytes are inside it
SAMPLE_MARGIN = 2  # an element may be this much larger than the largest one seen


def flat_specs(spec: Any) -> list[Any]:
    import tensorflow as tf

    return [item for item in tf.nest.flatten(spec) if item is not None and type(item).__name__ != "NoneTensorSpec"]


def size_of_spec(spec: Any, batch: int | None) -> tuple[Span, int, bool]:
    """Bytes of an element, its number of tensors, and whether its spec says it all. A first open dimension is the batch."""
    sizes, closed = [], True
    flat = flat_specs(spec)
    for item in flat:
        size, known = size_of_leaf(item, batch)
        sizes.append(size)
        closed = closed and known
    return sum(sizes, NOTHING), max(1, len(flat)), closed


def size_of_leaf(spec: Any, batch: int | None) -> tuple[Span, bool]:
    if type(spec).__name__ == "DatasetSpec":  # a window: its own stage counts what it holds
        return NOTHING, True
    shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    if shape is None or dtype is None or shape.rank is None:
        return ordered(0, 8, OPEN_DIMENSION.high * 8), False
    sizes = [None if size is None else int(size) for size in shape]
    if sizes and sizes[0] is None and batch is not None:
        sizes[0] = batch
    known = type(spec).__name__ == "TensorSpec" and None not in sizes
    open_sizes = OPEN_DIMENSION
    count = exactly(prod(size for size in sizes if size is not None))
    for size in sizes:
        count = count * open_sizes if size is None else count
    if dtype.name == "string":
        return count * STRING_BYTES + count * OPEN_STRING, False
    if type(spec).__name__ != "TensorSpec":  # ragged and sparse: splits or indices beside the values
        return count.times(0, 1, 1) * (dtype.size + 8), False
    return count * max(1, dtype.size), known


def size_of_value(value: Any) -> int:
    """Bytes of a real element: dense, ragged or sparse tensors, strings with their characters."""
    import tensorflow as tf

    size = 0
    for tensor in tf.nest.flatten(value, expand_composites=True):
        if tensor is None or not hasattr(tensor, "dtype"):
            continue
        count = prod(tensor.shape.as_list()) if tensor.shape.rank else 1
        if tensor.dtype == tf.string:
            size += STRING_BYTES * count + int(tf.reduce_sum(tf.strings.length(tensor)))
        else:
            size += count * max(1, tensor.dtype.size)
    return size


def size_of_samples(values: Iterable[Any], bounds: Span) -> Span | None:
    """The size that a few real elements suggest: their mean, and twice the largest as the upper bound."""
    sizes = [size_of_value(value) for value in values]
    if not sizes:
        return None
    mean = sum(sizes) // len(sizes)
    return ordered(min(bounds.low, *sizes), mean, max(sizes) * SAMPLE_MARGIN)
