"""Values that a step returns or gives a metric, on their way through the slices."""

from typing import Any


def times(value: Any, weight: Any) -> Any:
    import tensorflow as tf

    value = tf.convert_to_tensor(value)
    return value * tf.cast(weight, value.dtype)


def over(total: Any, weights: Any) -> Any:
    import tensorflow as tf

    return tf.math.divide_no_nan(total, tf.cast(weights, total.dtype))


def rows_of(tensor: Any) -> Any:
    """Samples travel through the loop as sparse gradients do, which are put one after the other."""
    import tensorflow as tf

    return tf.IndexedSlices(tensor, tf.range(tf.shape(tensor)[0]), tf.constant([0] * tensor.shape.rank))


def like(leaf: Any, tensor: Any) -> Any:
    """As the step returns it by itself: a tensor, or a number of Python's or NumPy's, which is a tensor, too, where a graph returns it."""
    import numpy as np
    import tensorflow as tf

    if not isinstance(leaf, np.ndarray | np.generic | int | float):
        return tensor
    if not tf.executing_eagerly():
        return tf.cast(tensor, tf.convert_to_tensor(leaf).dtype)
    made = tensor.numpy()
    return type(leaf)(made) if isinstance(leaf, int | float) else made
