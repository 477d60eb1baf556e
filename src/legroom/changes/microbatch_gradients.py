"""Whether gradients that a model defines itself (`tf.custom_gradient`, `jax.custom_vjp`) keep the samples of a batch apart.

What goes forward says nothing of them, so that gradients are taken of a linear function of the outputs, small and large, whole and in slices: they must add up.

Private name used, tested with Keras 3.15.1: `Layer._flatten_layers`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from legroom.changes.made_up import CUTS, ROWS, rows_of
from legroom.changes.made_up_calls import call_model, model_values
from legroom.changes.microbatch_bends import equations_of

CUSTOM = "CustomGradient"
CUSTOM_JAX = "custom_vjp_call"
SCALES = (1.0, 1e4)  # a gradient that is clipped by a norm is not below it
APART = 0.05  # of batches of different sizes, which other kernels compute
NOISE = {
    False: 1e-5,
    True: 1e-2,
}  # of the largest gradient, in single precision and in half: of one that is zero but for rounding it is all there is
HALF = ("float16", "bfloat16")
Gradients = Callable[[Any, Any], list[Any]]  # of rows, and the weights of the outputs' rows


def gradients_add_up(model: Any, arrays: Any) -> bool:
    """True also where nothing can be told: with random numbers, and where user code does not run so."""
    try:
        return all(add_up(model, arrays, training) for training in modes(model, arrays))
    except Exception:  # noqa: BLE001 - the user's own, on inputs that may not suit it
        return True


def modes(model: Any, arrays: Any) -> list[bool]:
    """In training, or in inference where random numbers are drawn then; none where they are drawn there too."""
    rows = rows_of(arrays, 0, ROWS)
    return next(([training] for training in (True, False) if not draws(model, rows, training)), [])


def has_its_own(graph: Any) -> bool:
    """Whether a traced call has such a gradient."""
    if hasattr(graph, "jaxpr"):
        return any(name.startswith(CUSTOM_JAX) for name, _ in equations_of(graph.jaxpr))
    return any(node.attr["_gradient_op_type"].s.decode().startswith(CUSTOM) for node in nodes_of(graph))


def nodes_of(graph: Any) -> list[Any]:
    """All nodes of a TensorFlow graph, those of functions in it too."""
    if not hasattr(graph, "as_graph_def"):
        return []
    definition = graph.as_graph_def()
    return [*definition.node, *(node for function in definition.library.function for node in function.node_def)]


def draws(model: Any, rows: Any, training: bool) -> bool:
    """Whether a call changes anything: its seeds, that is."""
    import keras
    import numpy

    values = model_values(model)
    after = [keras.ops.convert_to_numpy(one) for one in call_model(model, values, rows, training)[1]]
    return any(not numpy.array_equal(one, two, equal_nan=True) for one, two in zip(values[1], after, strict=True))


def add_up(model: Any, arrays: Any, training: bool) -> bool:
    import keras

    make = gradients_on_jax if keras.backend.backend() == "jax" else gradients_on_tensorflow
    compute = make(model, training)
    shares = weights_of(model, arrays, training)
    for scale in SCALES:

        def found(start: int, stop: int, scale: float = scale) -> list[Any]:
            given = [None if one is None else (scale * one[start:stop]).astype(one.dtype) for one in shares]
            return compute(rows_of(arrays, start, stop), given)

        whole, parts = found(0, ROWS), [found(*cut) for cut in CUTS]
        noise = NOISE[is_half(model)] * max(map(size_of, whole), default=0.0)
        if not all(close(one, [part[at] for part in parts], noise) for at, one in enumerate(whole)):
            return False
    return True


def weights_of(model: Any, arrays: Any, training: bool) -> list[Any]:
    """One for each number of the outputs that have a row for each sample; None for the other outputs."""
    import keras
    import numpy

    random = numpy.random.default_rng(0)
    outputs = keras.tree.flatten(call_model(model, model_values(model), rows_of(arrays, 0, ROWS), training)[0])
    return [
        random.normal(size=tuple(one.shape)).astype("float32")
        if len(one.shape) and one.shape[0] == ROWS and "float" in str(one.dtype)
        else None
        for one in outputs
    ]


def linear(outputs: Any, shares: Sequence[Any]) -> Any:
    import keras
    from keras import ops

    pairs = zip(keras.tree.flatten(outputs), shares, strict=True)
    return sum(ops.sum(ops.cast(one, "float32") * share) for one, share in pairs if share is not None)


def gradients_on_tensorflow(model: Any, training: bool) -> Gradients:
    import tensorflow as tf

    trained, others = model_values(model)

    def compute(rows: Any, shares: Any) -> Any:
        values = [tf.convert_to_tensor(one) for one in trained]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            target = linear(call_model(model, (values, others), rows, training)[0], shares)
        found = tape.gradient(target, values, unconnected_gradients="zero")
        return [tf.cast(tf.convert_to_tensor(one), tf.float32) for one in found]

    traced = tf.function(compute)
    return lambda rows, shares: [one.numpy() for one in traced(rows, shares)]


def gradients_on_jax(model: Any, training: bool) -> Gradients:
    import jax
    import numpy

    trained, others = model_values(model)

    def target(values: Any, rows: Any, shares: Any) -> Any:
        return linear(call_model(model, (values, others), rows, training)[0], shares)

    compute = jax.grad(target)
    return lambda rows, shares: [numpy.asarray(one, "float32") for one in compute(trained, rows, shares)]


def close(whole: Any, parts: Sequence[Any], noise: float) -> bool:
    """Whether the slices' gradients add up to the whole batch's, measured by what is added up."""
    size = max(map(size_of, (whole, *parts)))
    return not size < float("inf") or size_of(whole - sum(parts)) <= max(APART * size, noise)


def size_of(values: Any) -> float:
    from numpy.linalg import norm

    return float(norm(values))


def is_half(model: Any) -> bool:
    return any(str(layer.compute_dtype) in HALF for layer in model._flatten_layers())
