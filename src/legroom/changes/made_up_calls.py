"""A model called on made-up rows with made-up weights: what it puts out, what its state becomes, and what its layers add to the loss.

Nothing of the model is read or changed.

Private names used, tested with Keras 3.15.1: `Layer._losses_override`, `Trainer._call_has_training_arg`, `Trainer._aggregate_additional_loss`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from legroom.changes.later_numbers import MadeUp, is_small
from legroom.changes.made_up import ROWS, random_like
from legroom.changes.microbatch_sizes import content_of


@dataclass(frozen=True)
class Forward:
    """A model's made-up forward pass, once for the same rows."""

    model: Any
    training: bool
    known: dict[tuple[int, bytes], Any] = field(default_factory=dict)

    def of(self, x: Any) -> tuple[Any, list[Any], list[Any]]:
        """Outputs, what to find in the variables meanwhile, and the losses that layers added."""
        import keras

        first = keras.tree.flatten(x)[0]
        rows = int(first.shape[0])
        key = rows, content_of(first)
        if key not in self.known:
            trainable, others = model_values(self.model)
            y_pred, others, losses = call_model(self.model, (trainable, others), x, self.training)
            mapping = [*zip(self.model.trainable_variables, trainable, strict=True)]
            mapping += [*zip(self.model.non_trainable_variables, others, strict=True)]
            self.known[key] = y_pred, mapping, losses
            self.known.setdefault((rows, b""), self.known[key])
        found: tuple[Any, list[Any], list[Any]] = self.known[key]
        return found


def made_for_model(specs: tuple[Any, ...], rows: int = ROWS) -> tuple[Any, ...]:
    """Inputs of any sign, and labels and weights of 0 and 1."""
    return tuple(random_like(spec, "binary" if seed else "signed", seed, rows) for seed, spec in enumerate(specs))


def added_losses(model: Any, x: Any, training: bool, scale: float = 1.0) -> list[Any]:
    trainable, others = model_values(model)
    *_, losses = call_model(model, ([scale * value for value in trainable], others), x, training)
    regularised = len([weight for weight in model.trainable_weights if weight.regularizer is not None])
    return [model._aggregate_additional_loss(loss) for loss in losses[: len(losses) - regularised]]


def call_model(model: Any, values: tuple[list[Any], list[Any]], x: Any, training: bool) -> tuple[Any, Any, Any]:
    """Outputs, the new values of variables that are not trained, and all losses, as this backend's trainer gets them."""
    import keras

    arguments = {"training": training} if model._call_has_training_arg else {}
    with overriding(model, []):
        if keras.backend.backend() == "jax":  # of a layer that is called twice, its last losses only
            y_pred, others, losses = model.stateless_call(*values, x, return_losses=True, **arguments)
            return y_pred, others, losses
        mapping = [*zip(model.trainable_variables, values[0], strict=True)]
        mapping += [*zip(model.non_trainable_variables, values[1], strict=True)]
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
            y_pred = model(x, **arguments)
            losses = model.losses
    return y_pred, [scope.get_current_value(variable) for variable in model.non_trainable_variables], losses


@contextmanager
def overriding(model: Any, losses: list[Any]) -> Iterator[None]:
    """What `model.losses` is meanwhile; a step being traced around this may have set it."""
    kept = model._losses_override
    model._losses_override = losses
    try:
        yield
    finally:
        model._losses_override = kept


def model_values(model: Any) -> tuple[list[Any], list[Any]]:
    """Made-up values for a model's variables, the same each time."""
    import numpy

    random = numpy.random.default_rng(0)

    def value(variable: Any, trained: bool) -> Any:
        if "float" not in str(variable.dtype):
            return numpy.full(variable.shape, 0 if tuple(variable.shape) else MadeUp.whole, variable.dtype)
        if not trained and MadeUp.number is not None and is_small(variable):
            return numpy.full(variable.shape, MadeUp.number, variable.dtype)
        values = random.normal(0.0, 0.2, variable.shape) if trained else random.uniform(0.5, 1.5, variable.shape)
        return values.astype(variable.dtype)

    trainable = [value(variable, True) for variable in model.trainable_variables]
    others = [value(variable, False) for variable in model.non_trainable_variables]
    return trainable, others
