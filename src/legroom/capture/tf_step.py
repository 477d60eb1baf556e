"""A plain `@tf.function` train step with a GradientTape, captured from its first call.

The step is traced, never run. It is a train step when a tape is asked for gradients while it is traced.
Private names used, tested with TensorFlow 2.21.0: `Function._python_function`, `Function._jit_compile`, `TfMethodTarget.target`.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

from legroom.capture.batch import (
    ArraySpec,
    Tree,
    batch_of,
    iter_specs,
    leaf_spec,
    map_specs,
    require_static,
    with_batch,
)
from legroom.capture.keras_execution import framework_version
from legroom.capture.keras_fit import layer_names
from legroom.errors import InputError
from legroom.records import Execution, Step


@dataclass(frozen=True)
class FunctionStep:
    """A live train step with the arguments it was called with, arrays as specs."""

    function: Any
    args: Tree
    kwargs: Tree
    step: Step

    def at_batch(self, batch: int) -> "FunctionStep":
        """The same step for another batch size; every array argument that had the batch in front is resized."""
        if self.step.batch is None:
            raise InputError(
                "This train step takes no batch as an argument, so its batch size cannot be changed from outside.",
                "Pass the batch as an argument of the step, or change it in the script.",
            )
        args, kwargs = with_batch((self.args, self.kwargs), batch)
        return replace(self, args=args, kwargs=kwargs, step=replace(self.step, batch=batch))


class TapeWatch:
    """Counts how often a GradientTape is asked for gradients while it is open."""

    def __init__(self) -> None:
        self.calls = 0


@contextmanager
def watch_tapes() -> Iterator[TapeWatch]:
    import tensorflow as tf

    watch = TapeWatch()
    original = tf.GradientTape.gradient

    def gradient(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch.calls += 1
        return original(self, *args, **kwargs)

    tf.GradientTape.gradient = gradient
    try:
        yield watch
    finally:
        tf.GradientTape.gradient = original


@contextmanager
def functions_traced() -> Iterator[bool]:
    """`tf.function`s are traced inside, whatever `run_functions_eagerly` says; yields what it said."""
    import tensorflow as tf

    eagerly = bool(tf.config.functions_run_eagerly())
    tf.config.run_functions_eagerly(False)
    try:
        yield eagerly
    finally:
        tf.config.run_functions_eagerly(eagerly)


def argument_specs(value: Any) -> Any:
    """Arrays and tensors as specs, in any nesting; all other arguments as they are."""
    import numpy as np
    import tensorflow as tf

    def leaf(item: Any) -> Any:
        if isinstance(item, np.ndarray | np.generic | tf.Tensor):
            return leaf_spec(item)
        return item

    if isinstance(value, tuple | list | dict):
        return tf.nest.map_structure(leaf, value)
    return leaf(value)


def written_function(function: Any) -> Any:
    """The Python function of a `tf.function` as its user wrote it, bound to its object where it is a method: what TensorFlow has there calls it without AutoGraph."""
    plain = function.python_function
    method = getattr(
        plain, "__original_wrapped__", None
    )  # where it has been traced, AutoGraph has put something else in `__wrapped__`
    if not isinstance(method, MethodType):
        return plain
    target = getattr(method.__self__, "target", None)
    return plain if target is None else MethodType(method.__func__, target)


def capture_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FunctionStep | None:
    """The train step behind this call of a `tf.function`, or None if it takes no gradients."""
    import keras

    with watch_tapes() as watch, functions_traced() as eagerly:
        concrete = function.get_concrete_function(*args, **kwargs)
    if watch.calls == 0:
        return None
    require_a_batch(function, concrete)
    specs, named = argument_specs(args), argument_specs(kwargs)
    require_static((specs, named))
    compiled = bool(function._jit_compile)
    execution: Execution = "eager" if eagerly else "xla" if compiled else "graph"
    reasons = {
        "eager": "tf.config.run_functions_eagerly(True)",
        "xla": "@tf.function(jit_compile=True)",
        "graph": "a plain @tf.function",
    }
    python_function = written_function(function)
    step = Step(
        framework="tensorflow",
        framework_version=framework_version("tensorflow"),
        keras_version=keras.__version__,
        source=f"@tf.function {getattr(python_function, '__name__', 'step')}",
        execution=execution,
        execution_reason=reasons[execution],
        batch=batch_of((specs, named)),
        parameters=(),
        policy=keras.mixed_precision.dtype_policy().name,
        layers=closure_layers(python_function),
        notes=closure_notes(specs, named),
    )
    return FunctionStep(python_function, specs, named, step)


def require_a_batch(function: Any, concrete: Any) -> None:
    """What a loop over a dataset takes inside a graph is not known: its batches are made there."""
    if any(operation.type == "ReduceDataset" for operation in concrete.graph.get_operations()):
        name = getattr(function.python_function, "__name__", "step")
        raise InputError(
            f"The training step {name!r} loops over a dataset inside a tf.function, so that what one batch takes cannot be told apart.",
            "Loop in Python (for x, y in dataset: step(x, y)), and make a tf.function of what is done with one batch.",
        )


def closure_layers(function: Any) -> tuple[str, ...]:
    """The layers of all Keras models that the step's code refers to."""
    import keras

    try:
        variables = inspect.getclosurevars(inspect.unwrap(function))
    except TypeError:
        return ()
    owner = getattr(function, "__self__", None)
    reachable = [*variables.nonlocals.values(), *variables.globals.values(), owner, *vars(owner or object).values()]
    models = [value for value in reachable if isinstance(value, keras.Layer)]
    return tuple(dict.fromkeys(name for model in models for name in layer_names(model)))


def closure_notes(specs: Tree, named: Tree) -> tuple[str, ...]:
    if any(True for _ in iter_specs((specs, named))):
        return ()
    return ("The step takes no arrays as arguments: what it reads from outside counts as it is.",)


def tensor_specs(tree: Tree) -> Any:
    """ArraySpecs as TensorFlow's own."""
    import tensorflow as tf

    def convert(spec: ArraySpec) -> Any:
        return tf.TensorSpec(spec.shape, spec.dtype)

    return map_specs(convert, tree)
