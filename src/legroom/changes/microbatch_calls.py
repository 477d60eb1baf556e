"""A model called on made-up rows, eagerly or in a graph as it trains: its outputs, and what it would change.

Private names used, tested with Keras 3.15.1: `Layer._flatten_layers`, `Layer._seed_generators`, `Trainer._call_has_training_arg`.
"""

from collections.abc import Callable
from typing import Any

from legroom.changes.made_up import rows_of
from legroom.changes.made_up_calls import call_model, model_values
from legroom.changes.microbatch_gradients import nodes_of


def values_of(model: Any) -> tuple[list[Any], list[Any]]:
    """The model's own values; on JAX Keras has taken them out of the variables while it trains."""
    import keras

    if keras.backend.backend() == "jax":
        return model_values(model)
    return [v.value for v in model.trainable_variables], [v.value for v in model.non_trainable_variables]


def caller(
    model: Any, training: bool = True, relaxed: bool = False
) -> Callable[[Any], tuple[Any, list[Any], list[Any]]]:
    """Calls the model on rows: its outputs, and what cannot be trained before and after. In a graph where it trains in one: there
    every tensor is let go when it has been used, and not when the model has come to its end. `relaxed` traces it once for most sizes."""
    import keras

    values = values_of(model)

    def called(rows: Any) -> Any:
        return call_model(model, values, rows, training)[:2]

    if keras.backend.backend() == "tensorflow" and not model.run_eagerly:
        import tensorflow as tf

        called = tf.function(called, reduce_retracing=relaxed)
    return lambda rows: (*called(rows), values[1])


def traced(model: Any, rows: Any) -> Any:
    """The graph or jaxpr of a call, not run; None where the code runs eagerly only."""
    import keras

    values = values_of(model)
    call = lambda given: call_model(model, values, given, True)[0]  # noqa: E731
    try:
        if keras.backend.backend() == "jax":
            import jax

            return jax.make_jaxpr(call)(rows)
        import tensorflow as tf

        return tf.function(call).get_concrete_function(rows).graph
    except Exception:  # noqa: BLE001 - the user's own
        return None


def assigned_in(graph: Any) -> list[str]:
    """The names of TensorFlow's own variables that a call would assign to: Keras knows nothing of these."""
    kinds = {node.op for node in nodes_of(graph) if node.op.startswith("Assign") and node.op.endswith("VariableOp")}
    return ["a tf.Variable"] if kinds else []


def overwritten_in(model: Any, rows: Any) -> list[str]:
    """The paths of trained weights that a call assigns to; on JAX Keras forgets what it does. Traced, not run."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return []
    import tensorflow as tf

    found: list[str] = []

    def called(given: Any) -> None:
        with keras.StatelessScope() as scope:
            model(given, **({"training": True} if model._call_has_training_arg else {}))
            weights = model.trainable_variables
            found.extend(weight.path for weight in weights if scope.get_current_value(weight) is not None)

    try:
        tf.function(called).get_concrete_function(rows)
    except Exception:  # noqa: BLE001 - code that runs eagerly only
        return []
    return found


def rows_called(called: Callable[[Any], Any], arrays: Any, start: int, stop: int) -> tuple[list[Any], bool]:
    """The outputs for some rows, and whether anything has changed in the model: its seeds, that is."""
    import keras
    import numpy

    outputs, others, kept = called(rows_of(arrays, start, stop))
    pairs = [map(keras.ops.convert_to_numpy, pair) for pair in zip(kept, others, strict=True)]
    return numbers_of(outputs), any(not numpy.array_equal(one, two, equal_nan=True) for one, two in pairs)


def call(model: Any, called: Callable[[Any], Any], arrays: Any) -> tuple[list[Any], list[str]]:
    """The outputs, and the paths of variables that were changed; seeds may be."""
    import keras
    import numpy

    outputs, others, kept = called(rows_of(arrays, 0, None))
    seeds = {id(generator.state) for layer in model._flatten_layers() for generator in layer._seed_generators}
    changed = [
        variable.path
        for variable, before, after in zip(model.non_trainable_variables, kept, others, strict=True)
        if id(variable) not in seeds and "seed" not in variable.path.split("/")[-1]
        if not numpy.array_equal(keras.ops.convert_to_numpy(before), keras.ops.convert_to_numpy(after), equal_nan=True)
    ]
    return numbers_of(outputs), changed


def outputs_or_none(model: Any, called: Callable[[Any], Any], arrays: Any, *, must: bool) -> list[Any] | None:
    """The outputs, if the model takes such numbers, as it `must` or not."""
    try:
        return call(model, called, arrays)[0]
    except Exception:
        if must:
            raise
        return None


def numbers_of(outputs: Any) -> list[Any]:
    import keras

    return [keras.ops.convert_to_numpy(keras.ops.cast(one, "float32")) for one in keras.tree.flatten(outputs)]
