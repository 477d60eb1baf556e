"""Metrics that see a batch slice by slice.

Keras' metrics are sums over samples and need no help. A plain function that returns one number a batch is another matter:
Keras takes the mean of these numbers, so that each slice's must weigh what the slice is of the batch. If the function is a
mean over samples, the log is the whole batch's; if it is anything else (an F1 score, say), it is the slices' weighted mean.

Private names used, tested with Keras 3.15.1: `Trainer._compile_metrics`, `MeanMetricWrapper._fn`, `MeanMetricWrapper._fn_kwargs`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from legroom.changes.reductions import Slice


def update_metrics(model: Any, part: Slice, y_pred: Any) -> None:
    """The metrics given to `compile`, for one slice."""
    metrics = model._compile_metrics
    if metrics is None:
        return
    if not metrics.built:
        metrics.build(part.y, y_pred)
    with weighing_numbers(metrics.metrics, part.fraction):
        metrics.update_state(part.y, y_pred, part.sample_weight)


@contextmanager
def weighing_numbers(metrics: list[Any], fraction: Any) -> Iterator[None]:
    """Meanwhile a function's number for a slice counts for the slice's fraction of the batch."""
    import keras

    wrapped = [metric for metric in metrics if type(metric) is keras.metrics.MeanMetricWrapper and is_own(metric._fn)]
    for metric in wrapped:
        metric.__dict__["update_state"] = weighed(metric, fraction)
    try:
        yield
    finally:
        for metric in wrapped:
            del metric.__dict__["update_state"]


def is_own(function: Any) -> bool:
    """Keras' own functions give a value for each sample; its losses, where one is given as a metric, their mean."""
    import keras

    return isinstance(function, keras.losses.Loss) or not str(getattr(function, "__module__", "")).startswith("keras.")


def weighed(metric: Any, fraction: Any) -> Any:
    """`update_state` of a wrapped function, which is called once."""
    import keras

    original, function = metric.update_state, metric._fn

    def update_state(y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        values = function(y_true, y_pred, **metric._fn_kwargs)
        if sample_weight is None and len(values.shape) == 0:
            keras.metrics.Mean.update_state(metric, values, sample_weight=fraction)
            return
        metric._fn = lambda *_, **__: values
        try:
            original(y_true, y_pred, sample_weight=sample_weight)
        finally:
            metric._fn = function

    return update_state
