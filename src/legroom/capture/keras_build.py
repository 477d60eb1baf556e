"""A Keras model, its loss and its optimizer built from the shapes of a batch alone: nothing is trained.

Private names used, tested with Keras 3.15.1: `Trainer._symbolic_build`, `Trainer._flatten_layers`, `Sequential._functional`,
`Functional._run_through_graph` and `_outputs_struct`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from legroom.capture.batch import Tree, batch_of, iter_specs, map_specs
from legroom.capture.frames import describe
from legroom.capture.keras_execution import framework_of_keras
from legroom.errors import InputError, MissingError

TESTED = "Keras 3.15.1"
BUILT_HERE = "_legroom_built"


def build(model: Any, data: Tree) -> None:
    """Create the model's, the loss's and the optimizer's variables from shapes alone."""
    import keras

    if not hasattr(model, "_symbolic_build"):
        raise MissingError(
            f"This Keras ({keras.__version__}) builds models in another way than the one Legroom was tested with ({TESTED}).",
            "Install a tested version, or report it.",
        )
    symbolic = map_specs(lambda spec: keras.KerasTensor(spec.shape, spec.dtype), data)
    if not model.optimizer.built:
        setattr(model.optimizer, BUILT_HERE, True)
    strategy = getattr(model, "_distribute_strategy", None)
    with strategy.scope() if strategy is not None else nullcontext():
        try:
            with outputs_known(model, batch_of(data)):
                model._symbolic_build(data_batch=symbolic)
        except Exception as error:
            if framework_of_keras() != "tensorflow" or not build_by_tracing(model, data):
                raise InputError(
                    f"The model {model.name!r} could not be built for this batch: {describe(error)}",
                    "Check that the batch has the shape that the model, its loss and its metrics expect.",
                ) from error
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)


def will_make_slots(optimizer: Any) -> bool:
    """Whether TensorFlow will make the optimizer's variables when it first traces the step. Those that Legroom made to look at the step
    do not count: in the run that is asked about they will not have been there."""
    return not optimizer.built or hasattr(optimizer, BUILT_HERE)


@contextmanager
def outputs_known(model: Any, batch: int | None) -> Iterator[None]:
    """Meanwhile, a functional model whose layers are all built does not run through them to tell its outputs' shapes.

    Keras asks for these to make the metrics' variables, and takes as long for the answer as for tracing the step's forward pass.
    """
    graph = getattr(model, "_functional", None) or model
    if framework_of_keras() != "tensorflow" or not tells_outputs(model, graph):
        yield
        return
    import tensorflow as tf

    def outputs(inputs: Any, **how: Any) -> Any:
        asked = (tf.TensorShape(tensor.shape) for tensor in graph.inputs)
        if not all(shape.is_compatible_with(given.shape) for shape, given in zip(asked, inputs, strict=True)):
            return type(graph)._run_through_graph(graph, inputs, **how)
        made = [tf.zeros([batch if size is None else size for size in out.shape], out.dtype) for out in graph.outputs]
        return tf.nest.pack_sequence_as(graph._outputs_struct, made)

    before = vars(graph).get("_run_through_graph")  # a plan's, where layers are recomputed
    graph._run_through_graph = outputs
    try:
        yield
    finally:
        del graph._run_through_graph
        if before is not None:
            vars(graph)["_run_through_graph"] = before


def tells_outputs(model: Any, graph: Any) -> bool:
    """Whether its outputs' shapes are written down: all layers built, and no size open but the batch's."""
    from keras.src.models.functional import Functional

    if not isinstance(graph, Functional) or (not isinstance(model, Functional) and model._functional is not graph):
        return False
    if type(graph).call is not Functional.call or not hasattr(graph, "_run_through_graph"):
        return False
    if not all(layer.built for layer in model._flatten_layers()):
        return False
    return all(None not in out.shape[1:] and out.shape for out in graph.outputs)


def build_by_tracing(model: Any, data: Tree) -> bool:
    """Models without a `call` of their own (GANs, say) are built by their train step, which is what `fit` does on TensorFlow."""
    import tensorflow as tf

    leaves = list(iter_specs(data))

    def train_step(*tensors: Any) -> Any:
        given = iter(tensors)
        return model.train_step(map_specs(lambda spec: next(given), data))

    specs = [tf.TensorSpec(spec.shape, spec.dtype) for spec in leaves]
    with suppress(Exception):
        tf.function(train_step, autograph=False).get_concrete_function(*specs)
        return True
    return False
