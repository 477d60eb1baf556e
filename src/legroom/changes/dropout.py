"""Dropout that stores no mask: the gradient draws it again from the seed of the forward pass, bit for bit.

A dropout is linear, so its gradient is the same dropout of the gradient. Keras' own keeps a mask of its input's size until then.

Private names used, tested with Keras 3.15.1: `Layer._flatten_layers`, `BaseSpatialDropout._get_noise_shape`, and that
`backend.random.dropout` asks a `SeedGenerator` for its `next()` seed.
"""

from collections.abc import Callable
from typing import Any

from legroom.changes.known_layers import REDRAWN
from legroom.changes.precision import forget_functions
from legroom.errors import InputError

KINDS = ("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D")


def dropouts_of(model: Any) -> list[Any]:
    """The layers of a model, nested ones too, whose mask need not be stored: Keras' own, not what was derived from them."""
    import keras

    kinds = [getattr(keras.layers, name) for name in KINDS]
    return [layer for layer in model._flatten_layers() if type(layer) in kinds and 0 < layer.rate < 1]


def forget_masks(model: Any) -> Callable[[], None]:
    """Let every dropout draw its mask again for the gradient; returns the way back."""
    layers = dropouts_of(model)
    if not layers:
        raise InputError("This model has no dropout.", "There is no mask to save.")
    if any("call" in vars(layer) for layer in layers):
        raise InputError("A dropout of this model is changed already.", "Undo that first.")
    for layer in layers:
        layer.call = recomputing(layer)
    forget_functions(model)

    def undo() -> None:
        while layers:
            del layers.pop().call
            forget_functions(model)

    return undo


def recomputing(layer: Any) -> Callable[..., Any]:
    """The layer's call, with a gradient of our own."""

    def call(inputs: Any, training: bool = False) -> Any:
        if not training:
            return inputs
        own = getattr(layer, "_get_noise_shape", None)
        shape = own(inputs) if own is not None else layer.noise_shape
        return dropped(inputs, layer.seed_generator.next(), layer.rate, shape)

    setattr(call, REDRAWN, True)
    return call


def dropped(inputs: Any, seed: Any, rate: float, shape: Any) -> Any:
    import keras

    def drop(values: Any, drawn: Any) -> Any:
        from keras.src import backend

        return backend.random.dropout(values, rate, noise_shape=shape, seed=fixed(drawn))

    if keras.backend.backend() == "jax":
        return with_jax(drop, inputs, seed)
    return with_tensorflow(drop, inputs, seed)


def with_tensorflow(drop: Callable[[Any, Any], Any], inputs: Any, seed: Any) -> Any:
    import tensorflow as tf

    from legroom.changes.remat_order import after

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def forward(values: Any, drawn: Any) -> Any:
        def backward(upstream: Any) -> Any:
            return drop(upstream, after([upstream], [drawn])[0]), None

        return drop(values, after([values], [drawn])[0]), backward  # else all masks are drawn when the step starts

    return forward(inputs, tf.stop_gradient(seed))


def with_jax(drop: Callable[[Any, Any], Any], inputs: Any, seed: Any) -> Any:
    import jax
    import numpy as np

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def forward(values: Any, drawn: Any) -> Any:
        return drop(values, drawn)

    def keep(values: Any, drawn: Any) -> Any:
        return drop(values, drawn), drawn

    def backward(drawn: Any, upstream: Any) -> Any:
        late, _ = jax.lax.optimization_barrier((drawn, upstream))
        return drop(upstream, late), np.zeros(drawn.shape, jax.dtypes.float0)

    forward.defvjp(keep, backward)
    return forward(inputs, seed)


def fixed(seed: Any) -> Any:
    """A seed generator that gives this seed and no other."""
    import keras

    class Fixed(keras.random.SeedGenerator):  # type: ignore[misc]
        def __init__(self) -> None:
            """It has no state of its own."""

        def next(self, ordered: bool = True) -> Any:
            return seed

    return Fixed()
