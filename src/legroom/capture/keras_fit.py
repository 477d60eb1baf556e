"""A Keras model and its batch, captured from `fit`, `train_on_batch` or `legroom.estimate(model, batch)`. Nothing is trained.

Private names used, tested with Keras 3.15.1: `Trainer._flatten_layers`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from legroom.capture.batch import Tree, batch_of, require_static, with_batch
from legroom.capture.keras_build import build, will_make_slots
from legroom.capture.keras_data import data_of_fit
from legroom.capture.keras_execution import AUTOMATIC, execution_on_target, framework_of_keras, framework_version
from legroom.errors import InputError
from legroom.records import Step


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
