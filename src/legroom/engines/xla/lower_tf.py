"""A TensorFlow training step (Keras' or a `tf.function` of the user's) as an HLO module, traced from shapes alone.

TensorFlow's own bridge makes the HLO that it would make on the GPU, but for its name: nothing in Keras' steps is lowered
differently there. Private names used, tested with TensorFlow 2.21.0: `Function.experimental_get_compiler_ir` and its
stage `hlo_serialized`.
"""

import hashlib
from dataclasses import replace
from typing import Any

from legroom.capture.frames import ANSI
from legroom.capture.keras_fit import KerasStep
from legroom.capture.tf_step import FunctionStep, functions_traced, tensor_specs
from legroom.engines.xla.owners import OwnedVariables
from legroom.errors import EngineError, InputError
from legroom.records import Lowered, Role, Step, Tensor


def lower_keras(captured: KerasStep) -> Lowered:
    """`model.train_step` under `tf.function(jit_compile=True)`, as Keras' own `fit` compiles it."""
    model = captured.model
    roles: dict[int, Role] = {}
    groups: tuple[tuple[Role, Any], ...] = (
        ("weight", model.trainable_variables),
        ("state", model.non_trainable_variables),
        ("optimizer", model.optimizer.variables),
        ("metric", model.metrics_variables),
    )
    variables = {}
    for role, group in groups:
        for variable in group:
            roles[key_of(variable.value)] = role
            variables[key_of(variable.value)] = variable
    owned = OwnedVariables(model.trainable_variables, captured.step.layers)

    def describe(handle: Any) -> Tensor | None:
        variable = variables.get(id(handle))
        return None if variable is None else owned.tensor(variable, roles[id(handle)])

    return lower(model.train_step, (tensor_specs(captured.data),), {}, captured.step, describe)


def lower_function(captured: FunctionStep) -> Lowered:
    """A train step of the user's; weights and slots are told apart by what the optimizer calls its own."""

    def describe(handle: Any) -> Tensor | None:
        return None

    return lower(captured.function, tensor_specs(captured.args), tensor_specs(captured.kwargs), captured.step, describe)


def key_of(variable: Any) -> int:
    return id(variable.handle)


def lower(function: Any, args: Any, kwargs: Any, step: Step, describe: Any) -> Lowered:
    import tensorflow as tf

    leaves = tf.nest.flatten((args, kwargs))
    specs = [leaf for leaf in leaves if isinstance(leaf, tf.TensorSpec)]

    def flat(*tensors: Any) -> Any:
        """The step with all its arrays as arguments of its own: the bridge takes no nested ones."""
        given = iter(tensors)
        filled = [next(given) if isinstance(leaf, tf.TensorSpec) else leaf for leaf in leaves]
        packed, named = tf.nest.pack_sequence_as((args, kwargs), filled)
        return function(*packed, **named)

    compiled = tf.function(flat, jit_compile=True, autograph=step.source.startswith("@"))
    try:
        with functions_traced():
            concrete = compiled.get_concrete_function(*specs)
            program = compiled.experimental_get_compiler_ir(*specs)(stage="hlo_serialized")
    except tf.errors.OpError as error:
        raise EngineError(
            f"TensorFlow cannot compile this step with XLA: {one_line(error)}",
            "Train it with jit_compile=False, or use other layers.",
        ) from error
    except (ValueError, TypeError) as error:
        if "Failed getting HLO" in str(error) or "conversion failed" in str(error) or "Compiler IR" in str(error):
            raise EngineError(
                f"TensorFlow cannot compile this step with XLA: {one_line(error)}",
                "Train it with jit_compile=False, or use other layers.",
            ) from error
        raise InputError(
            f"The training step could not be traced for this batch: {one_line(error)}",
            "Check that the batch has the shape that the model and its loss expect.",
        ) from error
    return Lowered(
        replace(step, parameters=parameters_of(concrete, describe, step.layers)), program, "hlo", identity_of(concrete)
    )


def identity_of(concrete: Any) -> str:
    """A hash of the traced graph. The HLO's own bytes differ from run to run: its maps are written in any order."""
    graph = concrete.graph.as_graph_def(add_shapes=True)
    shapes = [str(tensor.shape) for tensor in concrete.inputs]
    return hashlib.sha256(graph.SerializeToString(deterministic=True) + str(shapes).encode()).hexdigest()


def one_line(error: BaseException) -> str:
    return " ".join(ANSI.sub("", str(error)).split())[:600]


def parameters_of(concrete: Any, describe: Any, layers: tuple[str, ...]) -> tuple[Tensor, ...]:
    """The compiled program's parameters, in its order: the step's arrays, then what it captured."""
    captured = concrete.captured_inputs
    inputs = concrete.inputs[: len(concrete.inputs) - len(captured)]
    found = [
        Tensor(tensor.name.partition(":")[0], tuple(tensor.shape.as_list()), tensor.dtype.name, "input")
        for tensor in inputs
    ]
    by_handle = {id(variable.handle): variable for variable in concrete.graph.variables}
    weights = [Named(variable) for variable in by_handle.values() if variable.trainable]
    slots = OwnedVariables(weights, layers)
    for handle in captured:
        variable = by_handle.get(id(handle))
        if variable is None:
            found.append(Tensor(str(handle.dtype.name), tuple(handle.shape), handle.dtype.name, "other"))
            continue
        found.append(describe(handle) or guess(Named(variable), slots))
    return tuple(found)


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
