"""A model's own `train_step` on TensorFlow, run once for each slice with the optimizer held back until the last one.

What it differentiates is not ours to take apart, so its gradients are compared once, on a few made-up samples: those of the
whole against those of two slices. Means are weighted by the slices' sizes, sums are not, and anything else is refused.

Private names used, tested with Keras 3.15.1: `Layer._flatten_layers`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from legroom.changes.microbatch_loop import Found, accumulate, cut_batch, trace
from legroom.changes.microbatch_probe import CUTS, ROWS, TOLERANCE, eagerly, random_like, rows_of
from legroom.changes.microbatch_tf import scaled, shaped
from legroom.errors import InputError

RATES = ("rate", "dropout", "recurrent_dropout", "stddev")


@dataclass
class Held:
    """What a step gave to its optimizer, which did nothing with it."""

    gradients: list[Any] = field(default_factory=list)
    variables: list[Any] | None = None
    calls: int = 0


@dataclass(frozen=True)
class OwnStep:
    """One training step in slices, in place of a `train_step` that the user wrote."""

    model: Any
    count: int
    original: Callable[[Any], Any]
    exact: Callable[[], bool]  # whether the slices' gradients must add up to the batch's, as far as layers go
    kinds: dict[str, Literal["mean", "sum"]] = field(default_factory=dict)

    def __call__(self, data: Any) -> Any:
        """Run each slice; update once with all gradients; give back what the last slice logged."""
        import tensorflow as tf

        cut = cut_batch(data, self.count)
        kept: list[Held] = []

        def compute(part: Any, fraction: Any) -> Found:
            held, logs = self.run(part)
            kept[:] = [held]
            weight = 1.0 if self.kinds.get("step") == "sum" else fraction
            variables = held.variables or self.model.optimizer._trainable_variables
            pairs = zip(held.gradients, variables, strict=True)
            return Found(tuple(scaled(shaped(gradient, variable), weight) for gradient, variable in pairs), (), logs)

        layout = None
        if not cut.single:
            layout = None if tf.executing_eagerly() else trace(cut, compute)  # builds the model too
            if "step" not in self.kinds:
                self.kinds["step"] = self.probe(cut.data)
        compiled = bool(self.model.jit_compile) and not self.model.run_eagerly
        total = accumulate(cut, compute, layout, compiled)
        self.model.optimizer.apply(list(total.gradients), kept[-1].variables)
        return total.logs

    def run(self, data: Any) -> tuple[Held, dict[str, Any]]:
        with holding(self.model) as held:
            logs = self.original(data)
        if held.calls != 1:
            raise InputError(
                f"The train_step of {type(self.model).__name__} updates weights {held.calls} times; it can be run in slices "
                "only if it does so once.",
                "Plan with something other than micro-batches.",
            )
        return held, dict(logs or {})

    def probe(self, data: Any) -> Literal["mean", "sum"]:
        """Whether the step's gradients are a mean over its samples or a sum; its variables are as before afterwards."""
        import keras
        import numpy

        arrays = random_like(data, "signed")

        def gradients(start: int, stop: int) -> Any:
            held, _ = self.run(rows_of(arrays, start, stop))
            dense = [
                keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(g)) for g in held.gradients if g is not None
            ]
            return numpy.concatenate([array.ravel() for array in dense]).astype("float64")

        def compared() -> tuple[Any, list[Any]]:
            with restoring(self.model), without_dropout(self.model):
                return gradients(0, ROWS), [gradients(*cut) for cut in CUTS]

        whole, slices = eagerly(compared)
        mean = sum((stop - start) / ROWS * part for (start, stop), part in zip(CUTS, slices, strict=True))
        errors = {"mean": numpy.linalg.norm(whole - mean), "sum": numpy.linalg.norm(whole - sum(slices))}
        if min(errors.values()) > TOLERANCE * numpy.linalg.norm(whole) and self.exact():
            raise InputError(
                f"The gradients of {type(self.model).__name__}'s train_step are neither a mean over the samples nor a sum of "
                "them, so that it cannot be run in slices of the batch.",
                "Plan with something other than micro-batches, or let its loss be a mean over the samples.",
            )
        return "mean" if errors["mean"] <= errors["sum"] else "sum"


@contextmanager
def holding(model: Any) -> Iterator[Held]:
    """Meanwhile the model's optimizer notes what it is told to apply; another one of the model's is not allowed to update."""
    import keras

    held = Held()

    def note(grads: Any, trainable_variables: Any = None) -> None:
        held.calls += 1
        held.gradients = list(grads)
        held.variables = None if trainable_variables is None else list(trainable_variables)

    def refuse(grads: Any, trainable_variables: Any = None) -> None:
        raise InputError(
            f"The train_step of {type(model).__name__} updates weights with several optimizers, one after the other.",
            "Plan with something other than micro-batches.",
        )

    optimizers = [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    others = [optimizer for optimizer in optimizers if optimizer is not model.optimizer]
    before = [(optimizer, optimizer.__dict__.get("apply")) for optimizer in (model.optimizer, *others)]
    model.optimizer.__dict__["apply"] = note
    for optimizer in others:
        optimizer.__dict__["apply"] = refuse
    try:
        yield held
    finally:
        for optimizer, own in before:  # one may be held back already, by what runs this step
            del optimizer.__dict__["apply"]
            if own is not None:
                optimizer.__dict__["apply"] = own


@contextmanager
def restoring(model: Any) -> Iterator[None]:
    """What a step changes besides weights: statistics, seeds and metrics."""
    import keras

    variables = [*model.non_trainable_variables, *model.metrics_variables]
    values = [keras.ops.convert_to_numpy(variable) for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


@contextmanager
def without_dropout(model: Any) -> Iterator[None]:
    """Random layers with a rate do nothing meanwhile, so that gradients can be compared."""
    kept = [
        (layer, name, getattr(layer, name))
        for layer in model._flatten_layers()
        for name in RATES
        if isinstance(getattr(layer, name, None), float)
    ]
    for layer, name, _ in kept:
        setattr(layer, name, 0.0)
    try:
        yield
    finally:
        for layer, name, rate in kept:
            setattr(layer, name, rate)
