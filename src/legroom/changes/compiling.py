"""A step compiled by XLA, or run op by op: Keras on TensorFlow does either with the same model.

Private names used, tested with Keras 3.15.1: `keras.src.trainers.trainer.model_supports_jit`, `Trainer._jit_compile`.
"""

from collections.abc import Callable
from typing import Any

from legroom.changes.microbatch import is_random
from legroom.changes.precision import forget_functions
from legroom.errors import InputError
from legroom.records.plan import Effect


def set_compiled(model: Any, on: bool) -> Callable[[], None]:
    """Let `fit` compile the model's steps, or not; returns the way back."""
    from keras.src.trainers.trainer import model_supports_jit

    if on and model.run_eagerly:
        raise InputError(f"The model {model.name!r} runs eagerly, so that nothing of it is compiled.")
    if on and not model_supports_jit(model):
        raise InputError(f"Keras cannot compile the model {model.name!r}.", "A layer of it has supports_jit=False.")
    before = model._jit_compile
    model._jit_compile = on
    forget_functions(model)

    def undo() -> None:
        model._jit_compile = before
        forget_functions(model)

    return undo


def effect(model: Any) -> Effect:
    """The same up to the order of additions, but for random layers: XLA draws other numbers from the same seed."""
    random = [layer.name for layer in model._flatten_layers() if is_random(layer)]
    if not random:
        return Effect()
    more = f" and {len(random) - 1} more" if len(random) > 1 else ""
    return Effect("equivalent", (f"{random[0]}{more}: compiled code draws other random numbers from the same seed",))
