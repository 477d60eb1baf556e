"""A TensorFlow training step (Keras' or a `tf.function` of the user's) traced from shapes alone: its concrete function.

Both engines start from it. Private names used, tested with TensorFlow 2.21.0: `ConcreteFunction.captured_inputs`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from legroom.capture.batch import require_static
from legroom.capture.frames import ANSI, reason_of, user_frames
from legroom.capture.keras_fit import KerasStep
from legroom.capture.tf_step import FunctionStep, functions_traced, tensor_specs
from legroom.engines.owners import OwnedVariables
from legroom.errors import InputError, LegroomError
from legroom.records import Role, Step, Tensor

Describe = Callable[[Any], Tensor | None]  # what is known of a captured variable's handle


@dataclass(frozen=True)
class Traceable:
    """A step that can be traced: a function of its arrays alone, and what is known of the variables it captures."""

    function: Any
    leaves: list[Any]
    structure: Any
    step: Step
    describe: Describe

    @property
    def specs(self) -> list[Any]:
        """The arrays it takes, in order."""
        import tensorflow as tf

        return [leaf for leaf in self.leaves if isinstance(leaf, tf.TensorSpec)]

    def call(self, *tensors: Any) -> Any:
        """The step with all its arrays as arguments of its own: XLA's bridge takes no nested ones."""
        import tensorflow as tf

        given = iter(tensors)
        filled = [next(given) if isinstance(leaf, tf.TensorSpec) else leaf for leaf in self.leaves]
        packed, named = tf.nest.pack_sequence_as(self.structure, filled)
        return self.function(*packed, **named)


def traceable(captured: KerasStep | FunctionStep) -> Traceable:
    """The captured step, built and ready to be traced."""
    import tensorflow as tf

    if isinstance(captured, FunctionStep):
        require_static((captured.args, captured.kwargs))
        structure: Any = (tensor_specs(captured.args), tensor_specs(captured.kwargs))
        return Traceable(captured.function, tf.nest.flatten(structure), structure, captured.step, lambda handle: None)
    captured = captured.built()
    structure = ((tensor_specs(captured.data),), {})
    return Traceable(
        captured.model.train_step, tf.nest.flatten(structure), structure, captured.step, describe_keras(captured)
    )


EXPECTED = "Check that the batch has the shape that the model and its loss expect."
NO_LABELS = "Check that the batch has all that the model and its loss expect: (x, y) where there are labels."


def describe_keras(captured: KerasStep) -> Describe:
    """Roles and layers of a Keras model's variables, by their handles."""
    model = captured.model
    groups: tuple[tuple[Role, Any], ...] = (
        ("weight", model.trainable_variables),
        ("state", model.non_trainable_variables),
        ("optimizer", model.optimizer.variables),
        ("metric", model.metrics_variables),
    )
    known = {id(variable.value.handle): (variable, role) for role, group in groups for variable in group}
    owned = OwnedVariables(model.trainable_variables, captured.step.layers)

    def describe(handle: Any) -> Tensor | None:
        found = known.get(id(handle))
        return None if found is None else owned.tensor(*found)

    return describe


def compile_lazily(step: Traceable, *, jit_compile: bool) -> Any:
    """The step as a `tf.function` that nobody has called yet."""
    import tensorflow as tf

    return tf.function(step.call, jit_compile=jit_compile, autograph=step.step.source.startswith("@"))


def trace(step: Traceable, function: Any) -> Any:
    """The concrete function for the step's shapes. What the user's code raises is told with its line."""
    try:
        with functions_traced():
            return function.get_concrete_function(*step.specs)
    except LegroomError:
        raise
    except Exception as error:
        raise InputError(
            f"The training step could not be traced for this batch: {named(error)}\n{user_frames(error)}",
            NO_LABELS if "None values not supported" in str(error) else EXPECTED,
        ) from error


def named(error: BaseException) -> str:
    """`KeyError: 'x'`, on one line."""
    return reason_of(error) or f"{type(error).__name__}: {one_line(error)}"


def one_line(error: BaseException) -> str:
    return " ".join(ANSI.sub("", str(error)).split())[:600]


def with_parameters(step: Traceable, concrete: Any) -> Step:
    """The step with what goes into its program: its arrays, then what it captured, in that order."""
    captured = concrete.captured_inputs
    inputs = concrete.inputs[: len(concrete.inputs) - len(captured)]
    found = [
        Tensor(tensor.name.partition(":")[0], tuple(tensor.shape.as_list()), tensor.dtype.name, "input")
        for tensor in inputs
    ]
    by_handle = {id(variable.handle): variable for variable in concrete.graph.variables}
    weights = [Named(variable) for variable in by_handle.values() if variable.trainable]
    slots = OwnedVariables(weights, step.step.layers)
    for handle in captured:
        variable = by_handle.get(id(handle))
        if variable is None:
            found.append(Tensor(str(handle.dtype.name), tuple(handle.shape), handle.dtype.name, "other"))
            continue
        found.append(step.describe(handle) or guess(Named(variable), slots))
    return replace(step.step, parameters=tuple(found))


class Named:
    """A tf.Variable with the path of the Keras variable it stands for."""

    def __init__(self, variable: Any) -> None:
        self.path = variable.name.partition(":")[0]
        self.shape = tuple(variable.shape)
        self.dtype = variable.dtype.name
        self.trainable = variable.trainable


def guess(variable: Named, slots: OwnedVariables) -> Tensor:
    """Outside a Keras model's step: trainable ones are weights; those named after a weight are its optimizer's slots."""
    role: Role = "weight" if variable.trainable else "optimizer" if slots.slot_owner(variable.path) else "state"
    return slots.tensor(variable, role)
