"""Mixed precision for a live model: layers compute in 16 bits, variables stay as they are.

Tested with Keras 3.15.1, whose layers have a `dtype_policy` that can be set. float16 needs a loss scale, which only
`compile` can put in: it is refused here.
"""

from collections.abc import Callable
from typing import Any

from legroom.errors import InputError


def lower(model: Any, policy: str) -> Callable[[], None]:
    """Let every layer compute by the policy; returns the way back."""
    import keras

    if policy != "mixed_bfloat16":
        raise InputError(
            f"The precision {policy!r} cannot be given to a model that is compiled already.",
            "mixed_bfloat16 can; for float16 set keras.mixed_precision.set_global_policy before the model is made.",
        )
    layers = [layer for layer in model._flatten_layers() if str(layer.dtype_policy.name) == "float32"]
    if not layers:
        raise InputError("No layer of this model computes in float32.", "It is in mixed precision already.")
    before = [(layer, layer.dtype_policy) for layer in layers]
    for layer in layers:
        layer.dtype_policy = keras.DTypePolicy(policy)
    forget_functions(model)

    def undo() -> None:
        while before:
            layer, kept = before.pop()
            layer.dtype_policy = kept
        forget_functions(model)

    return undo


def forget_functions(model: Any) -> None:
    """Compiled steps were traced with the old precision."""
    for name in ("train_function", "test_function", "predict_function"):
        if hasattr(model, name):
            setattr(model, name, None)
