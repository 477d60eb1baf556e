"""The logs of each of several losses, weighed as `fit` weighs them.

Keras weighs a batch's number by the batch's size where that is known while the step is traced. In `fit` on TensorFlow it is not, for
data whose last batch may be smaller, and each batch weighs the same; the guard takes batches out of the iterator, and would know it.

Private names used, tested with Keras 3.15.1: `Trainer._compile_loss`, `CompileLoss._metrics`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

taken_from: ContextVar[Any] = ContextVar("taken_from", default=None)  # the iterator whose batches are being trained on


def is_open(iterator: Any) -> bool:
    """Whether its batches may be of several sizes, as far as it says."""
    import tensorflow as tf

    specs = tf.nest.flatten(getattr(iterator, "element_spec", None), expand_composites=True)
    shapes = [spec.shape for spec in specs if isinstance(spec, tf.TensorSpec)]
    return any(shape.rank is None or (shape.rank > 0 and shape[0] is None) for shape in shapes)


@contextmanager
def weighed_as_in_fit(model: Any) -> Iterator[None]:
    """Where the iterator does not tell the batch's size, the trackers of the model's losses do not weigh by it."""
    import keras

    if model is None or not is_open(taken_from.get()):
        yield
        return
    original = keras.metrics.Mean.update_state

    def update_state(self: Any, values: Any, sample_weight: Any = None) -> Any:
        compiled = getattr(model, "_compile_loss", None)
        own = compiled is not None and any(self is metric for metric in getattr(compiled, "_metrics", None) or ())
        return original(self, values, sample_weight=None if own else sample_weight)

    keras.metrics.Mean.update_state = update_state
    try:
        yield
    finally:
        keras.metrics.Mean.update_state = original
