"""Metrics that a model updates itself while Keras' own step runs: in `call`, in a layer's, in `compute_loss` or `compute_metrics`.

What is given a value for each sample adds up over slices. One number for the batch does not: each slice would give its own.

Private names used, tested with Keras 3.15.1: `Trainer._loss_tracker`, `Trainer._compile_metrics`, `Trainer._compile_loss`,
`Layer._metrics`, `Layer._flatten_layers`, `Trainer._compute_loss`, `Trainer._call_has_training_arg`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from legroom.changes.reductions import Losses

ROWS = 13  # of a batch that is only traced: no model has a dimension of that size


def own_metrics(model: Any) -> list[Any]:
    """Those that the model or its layers hold beside what `compile` made."""
    compiled = [model._loss_tracker, model._compile_metrics, *getattr(model._compile_loss, "metrics", ())]
    held = [*model.metrics, *(metric for layer in model._flatten_layers() for metric in layer._metrics)]
    theirs = {id(metric) for metric in compiled}
    return list({id(metric): metric for metric in held if id(metric) not in theirs}.values())


def numbers_given(model: Any, data: Any) -> list[Any]:
    """The model's own metrics that a step on TensorFlow gives something else than a value for each sample, learnt from a trace that
    is thrown away; all of them where the model cannot be traced."""
    import keras
    import tensorflow as tf

    metrics = own_metrics(model)
    if not metrics:
        return []
    leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]

    def scratch(*given: Any) -> None:
        values = iter(given)
        part = keras.tree.map_structure(lambda leaf: None if leaf is None else next(values), data)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(part)
        y_pred = model(x, training=True) if model._call_has_training_arg else model(x)
        model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
        if Losses(model).own_metrics:
            model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    with listening(metrics, ROWS) as found:
        try:
            specs = [tf.TensorSpec([ROWS, *leaf.shape[1:]], leaf.dtype) for leaf in map(tf.convert_to_tensor, leaves)]
            tf.function(scratch, autograph=False).get_concrete_function(*specs)
        except Exception:  # noqa: BLE001 - the user's own code, which may run eagerly only
            return metrics
    return list({id(metric): metric for metric in found}.values())


@contextmanager
def listening(metrics: list[Any], rows: int) -> Iterator[list[Any]]:
    """Those that are updated meanwhile with something else than a value for each of so many samples."""
    found: list[Any] = []
    replaced = [metric for metric in metrics if "update_state" not in vars(metric)]
    for metric in replaced:
        vars(metric)["update_state"] = heard(metric, rows, found)
    try:
        yield found
    finally:
        for metric in replaced:
            del vars(metric)["update_state"]


def heard(metric: Any, rows: int, found: list[Any]) -> Any:
    original = metric.update_state

    def update_state(*args: Any, **kwargs: Any) -> Any:
        if not of_samples(metric, [*args, *kwargs.values()], rows):
            found.append(metric)
        return original(*args, **kwargs)

    return update_state


def of_samples(metric: Any, given: list[Any], rows: int) -> bool:
    """Whether one of Keras' own metrics is given arrays with a row for each sample; what a user's metric does is not known."""
    import keras

    shapes = [tuple(getattr(leaf, "shape", ())) for leaf in keras.tree.flatten(given) if leaf is not None]
    ours = type(metric).__module__.partition(".")[0] == "keras"
    return ours and all(shape and shape[0] == rows for shape in shapes)
