"""What generated models are made of: each part is a function from a tensor to one of the same shape.

A part of `RANDOM` draws numbers or looks at several samples at once, so that it can be compared with recomputation only.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import layers

Part = Callable[[Any], Any]


class Adds(layers.Layer):  # type: ignore[misc]
    """Adds a loss of its own, the mean or the sum of its input's squares."""

    def __init__(self, reduce: str) -> None:
        super().__init__()
        self.reduce, self.supports_masking = reduce, True

    def call(self, x: Any) -> Any:
        self.add_loss(0.01 * getattr(keras.ops, self.reduce)(keras.ops.square(x)))
        return x


class Positions(layers.Layer):  # type: ignore[misc]
    """Adds what it has learned of each place, looked up alike for every sample."""

    def __init__(self, most: int, width: int) -> None:
        super().__init__()
        self.supports_masking = True
        self.places = layers.Embedding(most, width)

    def build(self, shape: Any) -> None:
        self.places.build(())

    def call(self, x: Any) -> Any:
        return x + self.places(keras.ops.arange(0, keras.ops.shape(x)[1]))


class Feedforward(layers.Layer):  # type: ignore[misc]
    """A layer with layers inside, among them batch normalisation and dropout where it may be random."""

    def __init__(self, width: int, random: bool) -> None:
        super().__init__()
        self.supports_masking = True
        self.norm = layers.BatchNormalization() if random else layers.LayerNormalization()
        self.inner, self.outer = layers.Dense(width + 2, activation="gelu"), layers.Dense(width)
        self.dropout = layers.Dropout(0.3 if random else 0.0)

    def build(self, shape: Any) -> None:
        self.norm.build(shape)
        self.inner.build(shape)
        self.outer.build((*shape[:-1], self.inner.units))

    def call(self, x: Any, scale: float = 1.0, training: bool | None = None) -> Any:
        inner = self.inner(self.norm(x, training=training))
        return x + scale * self.outer(self.dropout(inner, training=training))


def width_of(x: Any) -> int:
    return int(x.shape[-1])


def dense(x: Any, activation: str = "tanh", **options: Any) -> Any:
    return layers.Dense(width_of(x), activation=activation, **options)(x)


def frozen(x: Any) -> Any:
    layer = layers.Dense(width_of(x), activation="tanh")
    layer.trainable = False
    return layer(x)


def frozen_norm(x: Any) -> Any:
    """Batch normalisation as it is when fine-tuning: it uses its statistics and does not move them."""
    layer = layers.BatchNormalization()
    layer.trainable = False
    return layer(x)


def shared(x: Any) -> Any:
    layer = layers.Dense(width_of(x), activation="tanh")
    return layer(layers.LayerNormalization()(layer(x)))


def nested_sequential(x: Any) -> Any:
    width = width_of(x)
    return keras.Sequential([keras.Input(x.shape[1:]), layers.Dense(3, activation="gelu"), layers.Dense(width)])(x)


def nested_functional(x: Any) -> Any:
    inner = keras.Input(x.shape[1:])
    normal = layers.LayerNormalization()(inner)
    return keras.Model(inner, layers.Add()([inner, dense(dense(normal))]))(x)


def called_twice(x: Any) -> Any:
    """A nested model that is called twice, which no block can open."""
    inner = keras.Input(x.shape[1:])
    model = keras.Model(inner, layers.Add()([inner, dense(inner)]))
    return model(model(x))


def operations(x: Any) -> Any:
    return keras.ops.tanh(x * 2.0 + 0.5) - keras.ops.flip(x, axis=-1)


def attention(x: Any, dropout: float = 0.0) -> Any:
    return layers.Add()([x, layers.MultiHeadAttention(2, 3, dropout=dropout)(x, x)])


def recurrent(kind: str, **options: Any) -> Part:
    return lambda x: getattr(layers, kind)(width_of(x), return_sequences=True, **options)(x)


def both_ways(x: Any) -> Any:
    return layers.Bidirectional(layers.GRU(width_of(x) // 2, return_sequences=True, use_cudnn=False))(x)


def strided(x: Any) -> Any:
    smaller = layers.Conv2D(3, 3, strides=2, padding="same", activation="relu")(x)
    return layers.Conv2DTranspose(width_of(x), 3, strides=2, padding="same")(smaller)


def squeezed(x: Any) -> Any:
    gate = layers.Dense(width_of(x), activation="sigmoid")(layers.GlobalAveragePooling2D(keepdims=True)(x))
    return layers.Multiply()([x, gate])


def a(kind: Any, *arguments: Any, **options: Any) -> Part:
    """One layer of this kind, made anew each time."""

    def part(x: Any) -> Any:
        return kind(*arguments, **options)(x)

    return part


ANYWHERE: dict[str, Part] = {
    "dense": dense,
    "gelu": lambda x: dense(x, "gelu"),
    "l2 weights": lambda x: dense(x, kernel_regularizer="l2", bias_regularizer="l1"),
    "l2 activity": lambda x: dense(x, activity_regularizer="l2"),
    "layer norm": a(layers.LayerNormalization),
    "rms norm": a(layers.RMSNormalization),
    "residual": lambda x: layers.Add()([x, dense(x, "relu")]),
    "gate": lambda x: layers.Multiply()([x, dense(x, "sigmoid")]),
    "concat": lambda x: layers.Dense(width_of(x))(layers.Concatenate()([x, layers.Dense(3, activation="silu")(x)])),
    "shared": shared,
    "frozen": frozen,
    "frozen norm": frozen_norm,
    "added mean": a(Adds, "mean"),
    "added sum": a(Adds, "sum"),
    "own layer": lambda x: Feedforward(width_of(x), random=False)(x),
    "nested sequential": nested_sequential,
    "nested functional": nested_functional,
    "called twice": called_twice,
    "operations": operations,
}
SEQUENCES: dict[str, Part] = {
    "conv1d": lambda x: layers.Conv1D(width_of(x), 3, padding="same", activation="tanh")(x),
    "separable conv1d": lambda x: layers.SeparableConv1D(width_of(x), 2, padding="same")(x),
    "gru": recurrent("GRU", use_cudnn=False),
    "lstm": recurrent("LSTM"),
    "lstm compiled": recurrent("LSTM", use_cudnn=False),
    "bidirectional": both_ways,
    "attention": attention,
}
IMAGES: dict[str, Part] = {
    "conv2d": lambda x: layers.Conv2D(width_of(x), 3, padding="same", activation="relu")(x),
    "depthwise": a(layers.DepthwiseConv2D, 3, padding="same"),
    "separable conv2d": lambda x: layers.SeparableConv2D(width_of(x), 3, padding="same", activation="relu")(x),
    "strided": strided,
    "group norm": a(layers.GroupNormalization, 2),
    "max pool": lambda x: layers.UpSampling2D()(layers.MaxPooling2D()(x)),
    "squeezed": squeezed,
}
RANDOM: dict[str, Part] = {
    "dropout": a(layers.Dropout, 0.3),
    "batch norm": a(layers.BatchNormalization),
    "noise": a(layers.GaussianNoise, 0.2),
    "gaussian dropout": a(layers.GaussianDropout, 0.2),
    "own random layer": lambda x: Feedforward(width_of(x), random=True)(x),
}
RANDOM_SEQUENCES: dict[str, Part] = {
    "spatial dropout 1d": a(layers.SpatialDropout1D, 0.3),
    "attention dropout": lambda x: attention(x, dropout=0.2),
    "lstm dropout": recurrent("LSTM", dropout=0.2, recurrent_dropout=0.2, use_cudnn=False),
}
RANDOM_IMAGES: dict[str, Part] = {"spatial dropout 2d": a(layers.SpatialDropout2D, 0.3)}

PARTS = ANYWHERE | SEQUENCES | IMAGES | RANDOM | RANDOM_SEQUENCES | RANDOM_IMAGES
STEADY = {"vectors": ANYWHERE, "images": ANYWHERE | IMAGES, "sequences": ANYWHERE | SEQUENCES}
STEADY["tokens"] = STEADY["sequences"]
UNSTEADY = {"vectors": RANDOM, "images": RANDOM | RANDOM_IMAGES, "sequences": RANDOM | RANDOM_SEQUENCES}
UNSTEADY["tokens"] = UNSTEADY["sequences"]


def as_layer(name: str, shape: Any) -> Any:
    """A part as one layer: a nested model."""
    inner = keras.Input(shape)
    return keras.Model(inner, PARTS[name](inner))
