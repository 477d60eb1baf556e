"""Sparse gradients of slices, put together as the whole batch's would be.

A row of a weight that is looked up for a sample has an entry of its own, in the batch as in its slice: those of all slices go one after the
other. A table that is looked up alike for every batch (positions, queries, a relative bias) has the same entries in each slice, in which the
samples are added up already: there entry is added to entry. Keras' optimizers square and clip entries as they come, so that it matters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """The gradient of a table that is looked up alike for every slice."""

    values: Any
    indices: Any
    shape: Any


def add_gradients(a: Any, b: Any) -> Any:
    """Sparse gradients stay sparse."""
    import tensorflow as tf

    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, Table) and isinstance(b, Table):
        return Table(a.values + b.values, b.indices, b.shape)
    a, b = plain(a), plain(b)
    if isinstance(a, tf.IndexedSlices) and isinstance(b, tf.IndexedSlices):
        return tf.IndexedSlices(tf.concat([a.values, b.values], 0), tf.concat([a.indices, b.indices], 0), a.dense_shape)
    return tf.convert_to_tensor(a) + tf.convert_to_tensor(b)


def plain(gradient: Any) -> Any:
    """As TensorFlow has it."""
    import tensorflow as tf

    return tf.IndexedSlices(*parts_of(gradient)) if isinstance(gradient, Table) else gradient


def parts_of(gradient: Any) -> tuple[Any, Any, Any]:
    return gradient.values, gradient.indices, gradient.shape if isinstance(gradient, Table) else gradient.dense_shape


def with_tables(gradients: Sequence[Any], tables: Sequence[bool]) -> tuple[Any, ...]:
    """Those of tables as such."""
    import tensorflow as tf

    return tuple(
        Table(*parts_of(gradient)) if is_table and isinstance(gradient, tf.IndexedSlices) else gradient
        for gradient, is_table in zip(gradients, tables, strict=True)
    )


def scaled(gradient: Any, factor: Any) -> Any:
    import tensorflow as tf

    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices | Table):
        return type(gradient)(gradient.values * tf.cast(factor, gradient.values.dtype), *parts_of(gradient)[1:])
    return gradient * tf.cast(factor, gradient.dtype)
