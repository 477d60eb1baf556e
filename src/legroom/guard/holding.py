"""A model's optimizer that notes what it is told to apply, and does nothing with it.

A step that is being run in slices (`changes.custom_loop`) is asked first: it applies only in its last slice.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from legroom.changes.custom_hooks import here
from legroom.errors import InputError


@dataclass
class Held:
    """What a step gave to its optimizer, which did nothing with it."""

    gradients: list[Any] = field(default_factory=list)
    variables: list[Any] | None = None
    calls: int = 0
    mark: int | None = None  # what `at_update` said at that moment


@contextmanager
def holding(model: Any, at_update: Callable[[], int] | None = None) -> Iterator[Held]:
    """Meanwhile the model's optimizer notes what it is told to apply; another one of the model's is not allowed to update.

    `at_update` is called at that moment: not when a step is only tried out, nor for slices before the last.
    """
    import keras

    held = Held()

    def note(grads: Any, trainable_variables: Any = None) -> None:
        grads = list(grads)
        if here.listener is None:
            keep(grads, trainable_variables)
        else:
            here.listener.apply(
                lambda given=grads: keep(given, trainable_variables), model.optimizer, grads, trainable_variables
            )

    def keep(grads: list[Any], trainable_variables: Any) -> None:
        held.calls += 1
        if at_update is not None and held.mark is None:
            held.mark = at_update()
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
