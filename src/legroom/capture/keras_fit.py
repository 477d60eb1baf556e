"""A Keras model and its batch, captured from `fit`, `train_on_batch` or `legroom.estimate(model, batch)`.

Private names used, tested with Keras 3.15.1: `Trainer._symbolic_build`, `Trainer._flatten_layers`, `Sequential._functional`,
`Functional._run_through_graph` and `_outputs_struct`,
`keras.src.trainers.trainer.model_supports_jit`, `keras.src.backend.tensorflow.rnn._do_…_arguments_support_cudnn`. Nothing is trained: the model and its optimizer are only built.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from math import floor
from typing import Any

from legroom.capture.batch import (
    DEFAULT_BATCH,
    ArraySpec,
    Tree,
    batch_of,
    iter_specs,
    leaf_spec,
    map_specs,
    require_static,
    specs_of,
    specs_of_dataset,
    with_batch,
)
from legroom.capture.frames import describe
from legroom.errors import InputError, MissingError
from legroom.records import Execution, Framework, Step

TESTED = "Keras 3.15.1"
AUTOMATIC = 'jit_compile="auto" is True on a GPU'
BUILT_HERE = "_legroom_built"


@dataclass(frozen=True)
class KerasStep:
    """A live model with the batch it is trained on. `step` says how it will run; engines turn it into a program."""

    model: Any
    data: Tree
    step: Step
    given: dict[str, Any] | None = None  # the arguments of `fit`, where it was called

    def at_batch(self, batch: int) -> "KerasStep":
        """The same step for another batch size."""
        data = with_batch(self.data, batch)
        require_static(data)
        return replace(self, data=data, step=replace(self.step, batch=batch))

    def built(self) -> "KerasStep":
        """The same step with all its variables made. Not done before it must be: a known step needs none of them."""
        require_static(self.data)
        build(self.model, self.data)
        return replace(self, step=replace(self.step, layers=layer_names(self.model)))


def framework_of_keras() -> Framework:
    """The backend that Keras runs on here, if it is one that Legroom knows."""
    import keras

    name = keras.backend.backend()
    if name not in ("tensorflow", "jax"):
        raise MissingError(
            f"Keras runs on the {name} backend here, and Legroom does not know that one.",
            "Set KERAS_BACKEND=tensorflow or KERAS_BACKEND=jax.",
        )
    framework: Framework = name
    return framework


def framework_version(framework: Framework) -> str:
    if framework == "tensorflow":
        import tensorflow

        return str(tensorflow.__version__)
    import jax

    return str(jax.__version__)


def capture_fit(model: Any, arguments: dict[str, Any], source: str, raw_jit: Any = None) -> KerasStep:
    """From the arguments of `fit` or `train_on_batch`, by name."""
    tree = data_of_fit(arguments, whole_batch=source == "train_on_batch")
    return replace(capture_model(model, tree, source, raw_jit), given=None if source == "train_on_batch" else arguments)


def capture_model(model: Any, data: Tree, source: str = "model", raw_jit: Any = None) -> KerasStep:
    """From a compiled model and the tree of its batch, as a train step gets it: x, (x, y) or (x, y, sample_weight)."""
    import keras

    if not isinstance(model, keras.Model):
        raise InputError(
            f"Expected a keras.Model to estimate, received a {type(model).__name__}.",
            "Return (model, batch) with a compiled Keras model; batch is x, (x, y) or (x, y, sample_weight).",
        )
    if not getattr(model, "compiled", False) or model.optimizer is None:
        raise InputError(
            f"The model {model.name!r} has not been compiled: its optimizer and loss are not known.",
            "Call model.compile(optimizer=..., loss=...) first.",
        )
    framework = framework_of_keras()
    batch = batch_of(data)
    if batch is not None:
        data = with_batch(data, batch)
        require_static(data)
    execution, reason = execution_on_target(model, framework, raw_jit)
    step = Step(
        framework=framework,
        framework_version=framework_version(framework),
        keras_version=keras.__version__,
        source=source,
        execution=execution,
        execution_reason=reason,
        batch=batch,
        parameters=(),
        layers=layer_names(model),
        optimizer=type(model.optimizer).__name__,
        policy=str(getattr(getattr(model, "dtype_policy", None), "name", "float32")),
        compiled_for_gpu=reason == AUTOMATIC,
        makes_slots=framework == "tensorflow" and will_make_slots(model.optimizer),
        notes=notes_of(model),
    )
    return KerasStep(model, data, step)


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


def execution_on_target(model: Any, framework: Framework, raw_jit: Any) -> tuple[Execution, str]:
    """How `fit` would run this model where a GPU is visible, whatever this machine has (facts: Keras' `jit_compile="auto"`)."""
    from keras.src.trainers.trainer import model_supports_jit

    if model.run_eagerly:
        return "eager", "run_eagerly=True"
    if raw_jit is False:
        return "graph", "jit_compile=False"
    if (
        framework == "tensorflow"
        and getattr(model, "_distribute_strategy", None) is not None
        and raw_jit in (None, "auto")
    ):
        return "graph", 'jit_compile="auto" is False under a distribution strategy'
    names = [layer.name for layer in model._flatten_layers() if not layer.supports_jit or needs_cudnn(layer, framework)]
    if names:
        return "graph", f"not compiled: {', '.join(names[:3])} cannot be"
    if not model_supports_jit(model):
        return "graph", "not compiled: Keras cannot (op determinism is on)"
    if framework == "jax":
        return ("xla", "JAX compiles its steps") if model.jit_compile else ("eager", "jit_compile=False")
    if raw_jit is True or (raw_jit is None and model.jit_compile):
        return "xla", "jit_compile=True"
    if raw_jit is None and gpu_visible():
        return "graph", "jit_compile=False"
    return "xla", AUTOMATIC


def needs_cudnn(layer: Any, framework: Framework) -> bool:
    """Whether Keras on TensorFlow would run this RNN layer through cuDNN where there is a GPU; XLA cannot compile that."""
    import keras

    if framework != "tensorflow" or not isinstance(layer, keras.layers.LSTM | keras.layers.GRU):
        return False
    rnn = importlib.import_module("keras.src.backend.tensorflow.rnn")
    cell = layer.cell
    settings = {"activation": cell.activation, "recurrent_activation": cell.recurrent_activation}
    settings |= {"unroll": layer.unroll, "use_bias": cell.use_bias}
    if isinstance(layer, keras.layers.GRU):
        fitting = rnn._do_gru_arguments_support_cudnn(**settings, reset_after=cell.reset_after)
    else:
        fitting = rnn._do_lstm_arguments_support_cudnn(**settings)
    return bool(fitting) and layer.use_cudnn in (True, "auto")


def gpu_visible() -> bool:
    """Whether Keras resolved `jit_compile="auto"` with a GPU in sight, so that a False is the user's own."""
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def layer_names(model: Any) -> tuple[str, ...]:
    """All layers by their way down from the model: `block_1`, `block_1/attention`, `block_1/attention/query`."""

    def walk(layer: Any, above: str) -> Iterator[str]:
        for inner in layer._flatten_layers(include_self=False, recursive=False):
            yield above + inner.name
            yield from walk(inner, f"{above}{inner.name}/")

    return tuple(dict.fromkeys(walk(model, "")))


def notes_of(model: Any) -> tuple[str, ...]:
    steps = getattr(model, "steps_per_execution", 1) or 1
    return (f"steps_per_execution={steps}: the peak is that of one step.",) if steps > 1 else ()


def data_of_fit(arguments: dict[str, Any], whole_batch: bool) -> Tree:
    """The batch that a call of `fit` (or, with `whole_batch`, of `train_on_batch`) would hand to the train step, as specs."""
    x, y, weight = arguments.get("x"), arguments.get("y"), arguments.get("sample_weight")
    class_weight = arguments.get("class_weight")
    if x is None:
        raise InputError("fit() was called without data.", "Pass x, a dataset or a generator.")
    if whole_batch:
        return add_class_weight(tuple(specs_of(part) for part in (x, y, weight)), class_weight)
    if is_dataset(x):
        return add_class_weight(specs_of_dataset(x), class_weight)
    if is_array_tree(x):
        batch = int(arguments.get("batch_size") or DEFAULT_BATCH)
        count = batch_of(specs_of(x))
        if count == 0:
            raise InputError("The arrays given to fit() are empty: there is no first batch.")
        if count and arguments.get("validation_split") and arguments.get("validation_data") is None:
            count = max(1, floor(count * (1.0 - arguments["validation_split"])))
        parts = with_batch(
            tuple(standard_floats(specs_of(part)) for part in (x, y, weight)), min(batch, count) if count else batch
        )
        return add_class_weight(pack(*parts), class_weight)
    return add_class_weight(standard_floats(standard_batch(specs_of(first_batch(x)))), class_weight)


def pack(x: Tree, y: Tree, weight: Tree) -> Tree:
    """As Keras packs arrays: x alone stays x."""
    if weight is not None:
        return (x, y, weight)
    if y is not None:
        return (x, y)
    return (x,) if isinstance(x, list | tuple) else x


def standard_batch(tree: Tree) -> Tree:
    """As Keras takes the batches of generators, PyDatasets and loaders: a list is a tuple, an array alone a tuple of one."""
    if isinstance(tree, list):
        return tuple(tree)
    return (tree,) if isinstance(tree, ArraySpec) else tree


def is_dataset(x: Any) -> bool:
    return any(cls.__name__ in ("DatasetV2", "DistributedDataset") for cls in type(x).__mro__) and hasattr(
        x, "element_spec"
    )


def is_array_tree(x: Any) -> bool:
    if isinstance(x, dict):
        return all(is_array_tree(value) for value in x.values())
    if isinstance(x, list | tuple):
        return bool(x) and all(is_array_tree(value) for value in x)
    return leaf_spec(x) is not None or type(x).__module__.startswith("pandas") or x is None


def first_batch(x: Any) -> Any:
    """The first batch of a PyDataset, a generator or a loader; its script is stopped afterwards, so none is missed."""
    import keras

    if isinstance(x, keras.utils.PyDataset):
        return x[0]
    try:
        return next(iter(x))
    except StopIteration:
        raise InputError("The data given to fit() is empty: its first batch does not exist.") from None
    except TypeError as error:
        raise InputError(
            f"Cannot read a batch from a {type(x).__name__}.",
            "Pass arrays, a tf.data.Dataset, a PyDataset or a generator.",
        ) from error


def standard_floats(tree: Tree) -> Tree:
    """Keras hands arrays to the model in its default float type, whatever float they were made in."""
    import keras

    floatx = keras.config.floatx()
    return map_specs(
        lambda spec: ArraySpec(spec.shape, floatx) if spec.dtype.startswith(("float", "bfloat")) else spec, tree
    )


def add_class_weight(tree: Tree, class_weight: Any) -> Tree:
    """`class_weight` arrives in the step as a sample weight for each example."""
    if class_weight is None or not isinstance(tree, tuple) or (len(tree) > 2 and tree[2] is not None):
        return tree
    import keras

    return (*(*tree, None)[:2], ArraySpec((batch_of(tree),), keras.config.floatx()))
