"""Variables that a model's own `compute_loss` and `compute_metrics` set, beside metrics, and weights that `compute_metrics` reads.

In slices they would be set once for each, and weights would be read before their update. On TensorFlow such a step runs as one of the user's own does, on JAX it is
refused.

Private names used, tested with Keras 3.15.1: `Trainer._compute_loss`, `Trainer._call_has_training_arg`, `StatelessScope.get_current_value` and `add_update`, the
name `seed_generator_state`.
"""

from typing import Any

from legroom.changes.custom_metrics import ROWS, own_metrics
from legroom.changes.microbatch_calls import assigned_in
from legroom.changes.reductions import overrides

SEED = "seed_generator_state"


def recording() -> Any:
    """A scope without state that remembers which variables are read in it, and which are set."""
    import keras

    class Recording(keras.StatelessScope):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.read: dict[int, Any] = {}
            self.written: dict[int, Any] = {}

        def get_current_value(self, variable: Any) -> Any:
            self.read[id(variable)] = variable
            return super().get_current_value(variable)

        def add_update(self, update: tuple[Any, Any]) -> None:
            self.written[id(update[0])] = update[0]
            super().add_update(update)

    return Recording


def met_by(model: Any, x: Any, y: Any, y_pred: Any, sample_weight: Any, **options: Any) -> list[Any]:
    """Those that the two set, and that `compute_metrics` reads, but for metrics and seeds; for the scope's `options` see `keras.StatelessScope`."""
    scope_of = recording()
    metrics = [*model.metrics, *own_metrics(model)]
    free = {id(variable) for metric in metrics for variable in metric.variables}
    found: dict[int, Any] = {}
    if overrides(model, "compute_loss"):
        with scope_of(**options) as scope:
            model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
        found |= scope.written
    if overrides(model, "compute_metrics"):
        with scope_of(**options) as scope:
            model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        found |= {**scope.read, **scope.written}
    return [one for key, one in found.items() if key not in free and one.name != SEED]


def meets_variables(model: Any, data: Any) -> bool:
    """Whether a step on TensorFlow has any, learnt from a trace that is thrown away; also where it cannot be traced."""
    import keras
    import tensorflow as tf

    if not (overrides(model, "compute_loss") or overrides(model, "compute_metrics")):
        return False
    leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]
    met: list[Any] = []

    def scratch(*given: Any) -> None:
        values = iter(given)
        part = keras.tree.map_structure(lambda leaf: None if leaf is None else next(values), data)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(part)
        with keras.StatelessScope():
            y_pred = model(x, training=True) if model._call_has_training_arg else model(x)
        met.extend(met_by(model, x, y, y_pred, sample_weight))

    try:
        specs = [tf.TensorSpec([ROWS, *leaf.shape[1:]], leaf.dtype) for leaf in map(tf.convert_to_tensor, leaves)]
        graph = tf.function(scratch, autograph=False).get_concrete_function(*specs).graph
    except Exception:  # noqa: BLE001 - the user's own code, which may run eagerly only
        return True
    return bool(met or assigned_in(graph))
