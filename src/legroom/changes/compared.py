"""The numbers that a function compares what it is given with: a padding id, a threshold. A loss that leaves some samples out does it by such a number, so that the samples it is tried out on must have it.

Read from the function's own graph (TensorFlow) or jaxpr (JAX), traced for that and thrown away.
"""

from collections.abc import Callable, Iterator
from typing import Any

MOST_NUMBERS = 24
COMPARISONS = frozenset(
    (
        *("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "ApproximateEqual"),
        *("Maximum", "Minimum", "ClipByValue", "Sub", "SquaredDifference", "FloorMod", "Select", "SelectV2"),
    )
)
HANDED_ON = frozenset(
    (
        *("Cast", "Identity", "Reshape", "ExpandDims", "Squeeze", "BroadcastTo", "Fill", "Neg", "Pack", "Tile"),
        *("StopGradient", "StridedSlice", "ReadVariableOp"),
    )
)
SMALL = 64  # entries of a constant that may hold such numbers: a list of ids that are left out


def compared_by(function: Callable[..., Any], *arrays: Any) -> tuple[float, ...]:
    """The numbers that a function compares something with when it is called on arrays such as these; none where it cannot be traced."""
    import keras

    try:
        if keras.backend.backend() == "jax":
            import jax

            return compared_literals(jax.make_jaxpr(function)(*arrays))
        import tensorflow as tf

        specs = keras.tree.map_structure(
            lambda one: None if one is None else tf.TensorSpec(one.shape, one.dtype), arrays
        )
        return compared_numbers(tf.function(function).get_concrete_function(*specs).graph)
    except Exception:  # noqa: BLE001 - the user's own code, which need not be traceable
        return ()


def compared_numbers(graph: Any) -> tuple[float, ...]:
    """Of a TensorFlow graph and the functions that it calls: the small constants that go into comparisons."""
    definition = graph.as_graph_def()
    bodies = [definition.node, *(function.node_def for function in definition.library.function)]
    held = [
        outer
        for outer, _ in getattr(graph, "captures", ())
        if hasattr(outer, "numpy") and outer.dtype.is_numpy_compatible
    ]
    small = [outer.numpy() for outer in held if outer.shape.num_elements() <= SMALL]
    return distinct(number for numbers in (*map(compared_in, bodies), *map(numbers_in, small)) for number in numbers)


def compared_in(nodes: Any) -> Iterator[float]:
    import tensorflow as tf

    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op in COMPARISONS:
            for name in node.input:
                source = by_name.get(name.lstrip("^").partition(":")[0])
                while source is not None and source.op in HANDED_ON and source.input:
                    value = source.input[1 if source.op == "Fill" else 0]
                    source = by_name.get(value.partition(":")[0])
                if source is not None and source.op == "Const":
                    yield from numbers_in(tf.make_ndarray(source.attr["value"].tensor))


def compared_literals(jaxpr: Any) -> tuple[float, ...]:
    """Of a jaxpr and those inside it: its small constants, whatever they are used for."""
    return distinct(number for constant in constants_of(jaxpr.jaxpr, jaxpr.consts) for number in numbers_in(constant))


def constants_of(jaxpr: Any, constants: Any) -> Iterator[Any]:
    yield from constants
    for equation in jaxpr.eqns:
        yield from (atom.val for atom in equation.invars if hasattr(atom, "val"))
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else (value,):
                if hasattr(inner, "jaxpr"):  # closed over its constants
                    yield from constants_of(inner.jaxpr, inner.consts)
                elif hasattr(inner, "eqns"):
                    yield from constants_of(inner, ())


def numbers_in(constant: Any) -> Iterator[float]:
    import numpy

    array = numpy.asarray(constant)
    if array.dtype.kind in "fiu" and 0 < array.size <= SMALL:
        yield from (float(number) for number in array.ravel() if numpy.isfinite(number))


def distinct(numbers: Iterator[float]) -> tuple[float, ...]:
    return tuple(dict.fromkeys(numbers))[:MOST_NUMBERS]


def marks_around(numbers: tuple[float, ...]) -> tuple[float, ...]:
    """The numbers themselves, and what lies a little below and above them and far beyond."""
    near = [(number, number - gap(number), number + gap(number), 10 * number) for number in numbers]
    shares = [(number - part(number), number + part(number)) for number in numbers if 0 < number < 1]
    return tuple(dict.fromkeys(mark for marks in (*near, *shares) for mark in marks))


def gap(number: float) -> float:
    return max(1.0, abs(number) / 10)


def part(share: float) -> float:
    """Half of what lies between a share and the nearer of 0 and 1: a threshold of what a model is sure of."""
    return min(share, 1 - share) / 2
