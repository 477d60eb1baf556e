"""Metrics that see a batch slice by slice.

Most are sums over samples and need no help. One number a batch, of a plain function or in a metric class of the user's, is another matter: Keras takes the mean of
these numbers, so that each slice's must weigh what the slice is of the batch. If the number is a mean over samples, the log is
the whole batch's; if it is anything else (an F1 score, say), it is the slices' weighted mean.

Private names used, tested with Keras 3.15.1: `Trainer._compile_metrics`; `keras.metrics.Mean.update_state` is replaced meanwhile.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

from legroom.changes.reductions import Slice

lock = threading.RLock()


def update_metrics(model: Any, own: bool, part: Slice, y_pred: Any) -> dict[str, Any]:
    """The metrics given to `compile`, for one slice: each sees it once. With `own` by the model's own `compute_metrics`, which may log more than metrics hold."""
    metrics = model._compile_metrics
    if metrics is not None and not metrics.built and not own:
        metrics.build(part.y, y_pred)
    with weighing_numbers(part.fraction), traced_anew([] if metrics is None else metrics.metrics):
        if own:
            return dict(model.compute_metrics(part.x, part.y, y_pred, part.sample_weight))
        if metrics is not None:
            metrics.update_state(part.y, y_pred, part.sample_weight)
    return {}


@contextmanager
def weighing_numbers(fraction: Any) -> Iterator[None]:
    """Meanwhile one number without a weight that a `Mean` is given, in this thread, counts for the slice's fraction of the batch."""
    import keras

    thread, original = threading.get_ident(), keras.metrics.Mean.update_state

    def update_state(metric: Any, values: Any, sample_weight: Any = None) -> Any:
        alone = sample_weight is None and not len(getattr(values, "shape", ()))
        weight = fraction if alone and threading.get_ident() == thread else sample_weight
        return original(metric, values, sample_weight=weight)

    with lock:
        keras.metrics.Mean.update_state = update_state
        try:
            yield
        finally:
            keras.metrics.Mean.update_state = original


@contextmanager
def traced_anew(metrics: list[Any]) -> Iterator[None]:
    """Where `update_state` is a `tf.function`, one of its own each time: a slice's fraction must not stay in its graphs."""
    found = [(metric, getattr(type(metric).update_state, "python_function", None)) for metric in metrics]
    functions = [(metric, function) for metric, function in found if function is not None]
    for metric, function in functions:
        import tensorflow as tf

        vars(metric)["update_state"] = tf.function(MethodType(function, metric))
    try:
        yield
    finally:
        for metric, _ in functions:
            del vars(metric)["update_state"]
