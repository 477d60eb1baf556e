"""Mixed precision for a live model: layers compute in 16 bits, variables stay as they are.

float16 has so small a range that the loss is scaled: as `compile` does for a model that was made in `mixed_float16`, the optimizer is
wrapped in a `LossScaleOptimizer`. Tested with Keras 3.15.1, whose layers have a `dtype_policy` that can be set and whose
optimizers, once built, keep their state in a wrapper.
"""

from collections.abc import Callable
from typing import Any

from legroom.errors import InputError

POLICIES = ("mixed_bfloat16", "mixed_float16")


def lower(model: Any, policy: str) -> Callable[[], None]:
    """Let every layer compute by the policy; returns the way back."""
    import keras

    if policy not in POLICIES:
        raise InputError(f"There is no mixed precision {policy!r}.", f"Known are: {', '.join(POLICIES)}.")
    layers = [layer for layer in model._flatten_layers() if str(layer.dtype_policy.name) == "float32"]
    if not layers:
        raise InputError("No layer of this model computes in float32.", "It is in mixed precision already.")
    unscale = scale_loss(model) if policy == "mixed_float16" else None
    before = [(layer, layer.dtype_policy) for layer in layers]
    for layer in layers:
        layer.dtype_policy = keras.DTypePolicy(policy)
    forget_functions(model)

    def undo() -> None:
        while before:
            layer, kept = before.pop()
            layer.dtype_policy = kept
        if unscale is not None:
            unscale()
        forget_functions(model)

    return undo


def scale_loss(model: Any) -> Callable[[], None] | None:
    """Wrap the model's optimizer as Keras would have; None where there is none to wrap, or it is wrapped already."""
    import keras

    plain = getattr(model, "optimizer", None)
    if plain is None or isinstance(plain, keras.optimizers.LossScaleOptimizer):
        return None
    factor = plain.loss_scale_factor
    model.optimizer = keras.optimizers.LossScaleOptimizer(plain, name="loss_scale_optimizer")
    if plain.built:
        model.optimizer.build(model.trainable_variables)

    def undo() -> None:
        model.optimizer = plain
        plain.loss_scale_factor = factor

    return undo


def forget_functions(model: Any) -> None:
    """Compiled steps were traced with the old precision."""
    for name in ("train_function", "test_function", "predict_function"):
        if hasattr(model, name):
            setattr(model, name, None)
