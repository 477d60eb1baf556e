"""Another optimizer for a live model, one that keeps less: with the same learning rate, clipping and weight decay.

What is learned is not the same. Private name used, tested with Keras 3.15.1: `Optimizer._learning_rate`.
"""

from collections.abc import Callable
from typing import Any

from legroom.changes.precision import forget_functions
from legroom.errors import InputError

LEANER = ("Lion", "Adafactor", "SGD")  # in Keras 3.15: one number a weight, one and a little, none
KEPT = (
    *("weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum", "ema_overwrite_frequency"),
    *("loss_scale_factor", "gradient_accumulation_steps"),
)


def leaner_than(model: Any) -> tuple[str, ...]:
    """The optimizers that may keep less than the model's own."""
    optimizer = inner(model.optimizer)
    weights = sum(size_of(variable) for variable in model.trainable_variables)
    held = sum(size_of(variable) for variable in optimizer.variables) / max(1, weights)
    least = {"Lion": 1.1, "Adafactor": 1.1, "SGD": 0.1}
    return tuple(name for name in LEANER if held > least[name] and type(optimizer).__name__ != name)


def replace_optimizer(model: Any, name: str) -> Callable[[], None]:
    """Train the model with the optimizer of that name; returns the way back."""
    import keras

    if name not in LEANER:
        raise InputError(f"Legroom does not propose the optimizer {name!r}.", f"It knows {', '.join(LEANER)}.")
    before = model.optimizer
    if before is None:
        raise InputError(f"The model {model.name!r} was compiled without an optimizer.")
    own = inner(before)
    settings = own.get_config()
    new = getattr(keras.optimizers, name)(
        learning_rate=learning_rate_of(own), **{key: settings[key] for key in KEPT if key in settings}
    )
    new.iterations.assign(
        int(own.iterations)
    )  # a schedule goes on where it was; an array of its own, as JAX donates it
    if own is not before:
        new = keras.optimizers.LossScaleOptimizer(new, before.initial_scale, before.dynamic_growth_steps)
    model.optimizer = new
    if before.built:
        new.build(model.trainable_variables)
    forget_functions(model)

    def undo() -> None:
        model.optimizer = before
        forget_functions(model)

    return undo


def inner(optimizer: Any) -> Any:
    """What a loss scale is wrapped around."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def learning_rate_of(optimizer: Any) -> Any:
    """Its schedule or function, else the number that it has now."""
    import keras

    rate = optimizer._learning_rate
    scheduled = isinstance(rate, keras.optimizers.schedules.LearningRateSchedule)
    return rate if scheduled or (callable(rate) and not hasattr(rate, "assign")) else float(optimizer.learning_rate)


def size_of(variable: Any) -> int:
    size = 1
    for length in variable.shape:
        size *= length
    return size
