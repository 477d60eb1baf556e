"""The models that the accuracy tables are made of: name → (builder, input shape, input dtype, target shape).

The first six are those behind `data/h200_truth.jsonl` (rows without `"set"`); the others were measured afterwards and
never used to tune anything (`"set": "held-out"`). One training step of `setup(name, batch, policy)` is what was measured.
Works under either Keras backend; import it after `KERAS_BACKEND` is set.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import layers as L


@dataclass(frozen=True)
class Entry:
    """A model, what goes in and what is compared with what comes out."""

    build: Callable[[], keras.Model]
    input_shape: tuple[int, ...]
    target_shape: tuple[int, ...] = ()
    input_dtype: str = "float32"
    optimizer: Callable[[], keras.optimizers.Optimizer] = lambda: keras.optimizers.Adam(1e-3)


def transformer(vocab: int, length: int, width: int, heads: int, depth: int, causal: bool) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        tokens = keras.Input((length,), dtype="int32")
        x = L.Embedding(vocab, width)(tokens)
        for _ in range(depth):
            y = L.LayerNormalization()(x)
            y = L.MultiHeadAttention(heads, width // heads, dropout=0.1)(y, y, use_causal_mask=causal)
            x = x + y
            y = L.LayerNormalization()(x)
            y = L.Dense(4 * width, activation="gelu")(y)
            y = L.Dense(width)(y)
            y = L.Dropout(0.1)(y)
            x = x + y
        x = L.LayerNormalization()(x)
        return keras.Model(tokens, L.Dense(vocab)(x))

    return build


def mlp() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((1000,)),
            L.Dense(512, activation="relu"),
            L.Dropout(0.5),
            L.Dense(256, activation="relu"),
            L.Dropout(0.3),
            L.Dense(10),
        ]
    )


def seed3() -> keras.Model:
    stack = [keras.Input((128, 128, 3))]
    for filters, last in ((256, False), (512, False), (1024, True)):
        stack += [L.Conv2D(filters, 3, activation="relu", padding="same") for _ in range(2)]
        stack.append(L.GlobalAveragePooling2D() if last else L.MaxPooling2D())
    return keras.Sequential([*stack, L.Dense(10)])


def lstm() -> keras.Model:
    return keras.Sequential([keras.Input((256, 128)), L.LSTM(512, return_sequences=True), L.LSTM(512), L.Dense(10)])


def unet(side: int = 256) -> keras.Model:
    image = x = keras.Input((side, side, 3))
    skips = []
    for filters in (32, 64, 128, 256):
        x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = L.BatchNormalization()(x)
        x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = L.MaxPooling2D()(x)
    x = L.Conv2D(512, 3, padding="same", activation="relu")(x)
    for filters, skip in zip((256, 128, 64, 32), skips[::-1], strict=True):
        x = L.Conv2DTranspose(filters, 2, strides=2)(x)
        x = L.Concatenate()([x, skip])
        x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return keras.Model(image, L.Conv2D(10, 1)(x))


def application(name: str, size: int = 224) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        factory = getattr(keras.applications, name)
        return factory(weights=None, input_shape=(size, size, 3), classes=1000, classifier_activation=None)

    return build


def vision_transformer() -> keras.Model:
    image = keras.Input((224, 224, 3))
    x = L.Conv2D(384, 16, strides=16)(image)
    x = L.Reshape((196, 384))(x)
    for _ in range(8):
        y = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(6, 64)(y, y)
        y = L.LayerNormalization()(x)
        x = x + L.Dense(384)(L.Dense(1536, activation="gelu")(y))
    return keras.Model(image, L.Dense(1000)(L.GlobalAveragePooling1D()(x)))


def recommender() -> keras.Model:
    items = keras.Input((64,), dtype="int32")
    x = L.GlobalAveragePooling1D()(L.Embedding(500_000, 96)(items))
    for units in (1024, 512):
        x = L.Dropout(0.2)(L.Dense(units, activation="relu")(x))
    return keras.Model(items, L.Dense(10)(x))


def wide_dense() -> keras.Model:
    hidden = [L.Dense(8192, activation="relu") for _ in range(4)]
    return keras.Sequential([keras.Input((2048,)), *hidden, L.Dense(10)])


def volume() -> keras.Model:
    scan = x = keras.Input((64, 64, 64, 1))
    for filters in (16, 32, 64):
        x = L.Conv3D(filters, 3, padding="same", activation="relu")(x)
        x = L.BatchNormalization()(x)
        x = L.MaxPooling3D()(x)
    return keras.Model(scan, L.Dense(10)(L.GlobalAveragePooling3D()(x)))


def sound() -> keras.Model:
    wave = x = keras.Input((16000, 1))
    for filters in (32, 64, 128, 256):
        x = L.Conv1D(filters, 9, strides=2, padding="same", activation="relu")(x)
        x = L.BatchNormalization()(x)
    return keras.Model(wave, L.Dense(10)(L.GlobalMaxPooling1D()(x)))


def autoencoder(side: int = 128) -> keras.Model:
    image = x = keras.Input((side, side, 3))
    for filters in (64, 128, 256):
        x = L.LeakyReLU()(L.Conv2D(filters, 4, strides=2, padding="same")(x))
    for filters in (128, 64, 32):
        x = L.Conv2DTranspose(filters, 4, strides=2, padding="same")(x)
        x = L.ReLU()(L.BatchNormalization()(x))
    return keras.Model(image, L.Conv2D(10, 3, padding="same")(x))


def both_ways() -> keras.Model:
    words = keras.Input((200,), dtype="int32")
    x = L.Embedding(20_000, 128)(words)
    x = L.Bidirectional(L.LSTM(128, return_sequences=True))(x)
    x = L.LSTM(64)(x)
    return keras.Model(words, L.Dense(10)(x))


def tutorial_cnn(side: int = 128) -> keras.Model:
    image = x = keras.Input((side, side, 3))
    for filters in (64, 128):
        x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = L.BatchNormalization()(x)
        x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = L.MaxPooling2D()(x)
    x = L.Conv2D(256, 3, padding="same", activation="relu")(x)
    x = L.Dropout(0.5)(L.GlobalAveragePooling2D()(x))
    return keras.Model(image, L.Dense(10)(x))


def super_resolution(side: int = 96) -> keras.Model:
    image = x = keras.Input((side, side, 3))
    x = first = L.Conv2D(64, 9, padding="same", activation="relu")(x)
    for _ in range(8):
        y = L.Conv2D(64, 3, padding="same", activation="relu")(x)
        x = x + L.Conv2D(64, 3, padding="same")(y)
    return keras.Model(image, L.Conv2D(10, 3, padding="same")(x + first))


def odd_unet() -> keras.Model:
    image = x = keras.Input((192, 192, 1))
    skips = []
    for filters in (24, 50, 100):
        x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = L.Dropout(0.1)(L.Conv2D(filters, 3, padding="same", activation="relu")(x))
        skips.append(x)
        x = L.MaxPooling2D()(x)
    x = L.Conv2D(200, 3, padding="same", activation="relu")(x)
    for filters, skip in zip((100, 50, 24), skips[::-1], strict=True):
        x = L.Concatenate()([L.UpSampling2D()(x), skip])
        x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return keras.Model(image, L.Conv2D(4, 1)(x))


def gru() -> keras.Model:
    return keras.Sequential([keras.Input((120, 64)), L.GRU(256, return_sequences=True), L.GRU(128), L.Dense(10)])


def wavenet(length: int = 4096) -> keras.Model:
    wave = x = keras.Input((length, 1))
    x = L.Conv1D(64, 2, padding="causal")(x)
    for dilation in (1, 2, 4, 8, 16, 32, 64):
        y = L.Conv1D(64, 2, dilation_rate=dilation, padding="causal", activation="tanh")(x)
        x = x + L.Conv1D(64, 1)(y)
    return keras.Model(wave, L.Dense(10)(L.GlobalAveragePooling1D()(x)))


def mixer() -> keras.Model:
    image = keras.Input((128, 128, 3))
    x = L.Reshape((64, 256))(L.Conv2D(256, 16, strides=16)(image))
    for _ in range(6):
        y = L.Permute((2, 1))(L.LayerNormalization()(x))
        x = x + L.Permute((2, 1))(L.Dense(64)(L.Dense(256, activation="gelu")(y)))
        y = L.LayerNormalization()(x)
        x = x + L.Dropout(0.1)(L.Dense(256)(L.Dense(1024, activation="gelu")(y)))
    return keras.Model(image, L.Dense(100)(L.GlobalAveragePooling1D()(x)))


def stride_net() -> keras.Model:
    image = x = keras.Input((160, 160, 3))
    for filters in (40, 80, 160, 320):
        x = L.Conv2D(filters, 5, strides=2, padding="same", use_bias=False)(x)
        x = L.Activation("swish")(L.BatchNormalization()(x))
        y = L.Activation("swish")(L.Conv2D(filters, 3, padding="same")(x))
        x = L.Add()([x, L.Conv2D(filters, 3, padding="same")(y)])
    return keras.Model(image, L.Dense(50)(L.GlobalMaxPooling2D()(x)))


def tagger() -> keras.Model:
    words = keras.Input((100,), dtype="int32")
    x = L.Embedding(30_000, 200)(words)
    x = L.Bidirectional(L.GRU(150, return_sequences=True))(x)
    x = L.TimeDistributed(L.Dense(100, activation="relu"))(L.Dropout(0.3)(x))
    return keras.Model(words, L.Dense(20)(x))


def translator() -> keras.Model:
    """An encoder and a decoder that looks at it."""
    source, target = keras.Input((160,), dtype="int32"), keras.Input((160,), dtype="int32")
    x = L.Embedding(16_000, 320)(source)
    for _ in range(3):
        y = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(5, 64)(y, y)
        x = x + L.Dense(320)(L.Dense(1280, activation="relu")(L.LayerNormalization()(x)))
    read, x = L.LayerNormalization()(x), L.Embedding(16_000, 320)(target)
    for _ in range(3):
        y = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(5, 64)(y, y, use_causal_mask=True)
        x = x + L.MultiHeadAttention(5, 64)(L.LayerNormalization()(x), read)
        x = x + L.Dropout(0.1)(L.Dense(320)(L.Dense(1280, activation="relu")(L.LayerNormalization()(x))))
    both = keras.Model([source, target], L.Dense(16_000)(x))
    words = keras.Input((160,), dtype="int32")
    return keras.Model(words, both([words, words[:, ::-1]]))


def long_attention() -> keras.Model:
    steps = x = keras.Input((1024, 32))
    x = L.Dense(128)(x)
    for _ in range(2):
        y = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(4, 32)(y, y)
        x = x + L.Dense(128)(L.Dense(512, activation="silu")(L.LayerNormalization()(x)))
    return keras.Model(steps, L.Dense(10)(L.GlobalMaxPooling1D()(x)))


def tabular() -> keras.Model:
    row = x = keras.Input((700,))
    x = L.Dense(1500)(x)
    for _ in range(10):
        y = L.BatchNormalization()(x)
        y = L.Dense(1500, activation="silu")(y) * L.Dense(1500, activation="sigmoid")(y)
        x = x + L.Dropout(0.1)(y)
    return keras.Model(row, L.Dense(30)(x))


def patches() -> keras.Model:
    """A vision transformer whose patches are cut without a convolution."""
    image = keras.Input((64, 64, 3))
    x = L.Permute((1, 3, 2, 4, 5))(L.Reshape((8, 8, 8, 8, 3))(image))
    x = L.Dense(256)(L.Reshape((64, 192))(x))
    for _ in range(5):
        y = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(8, 32, dropout=0.1)(y, y)
        x = x + L.Dense(256)(L.Dense(1024, activation="gelu")(L.LayerNormalization()(x)))
    return keras.Model(image, L.Dense(100)(L.Flatten()(x)))


def linear_attention() -> keras.Model:
    words = keras.Input((256,), dtype="int32")
    x = L.Embedding(12_000, 192)(words)
    for _ in range(4):
        y = L.LayerNormalization()(x)
        queries, keys = L.Softmax()(L.Dense(192)(y)), L.Softmax(axis=1)(L.Dense(192)(y))
        seen = L.Dot(axes=1)([keys, L.Dense(192)(y)])
        x = x + L.Dropout(0.1)(L.Dot(axes=(2, 1))([queries, seen]))
        x = x + L.Dense(192)(L.Dense(768, activation="gelu")(L.LayerNormalization()(x)))
    return keras.Model(words, L.Dense(12_000)(x))


ZOO: dict[str, Entry] = {
    "mlp": Entry(mlp, (1000,)),
    "seed3": Entry(seed3, (128, 128, 3)),
    "lstm": Entry(lstm, (256, 128)),
    "unet": Entry(unet, (256, 256, 3), (256, 256)),
    "gpt": Entry(transformer(8192, 512, 512, 8, 6, True), (512,), (512,), "int32"),
    "resnet50": Entry(application("ResNet50"), (224, 224, 3)),
    # op by op only, measured after the kernels' rules were made
    "wavenet": Entry(wavenet, (4096, 1)),
    "mixer": Entry(mixer, (128, 128, 3)),
    "stride_net": Entry(stride_net, (160, 160, 3)),
    "tagger": Entry(tagger, (100,), (100,), "int32", lambda: keras.optimizers.RMSprop(1e-3)),
    # held out
    "vgg16": Entry(application("VGG16"), (224, 224, 3), optimizer=lambda: keras.optimizers.SGD(1e-2, momentum=0.9)),
    "mobilenetv2": Entry(application("MobileNetV2"), (224, 224, 3)),
    "efficientnetb0": Entry(application("EfficientNetB0"), (224, 224, 3)),
    "densenet121": Entry(application("DenseNet121"), (224, 224, 3)),
    "xception": Entry(application("Xception", 299), (299, 299, 3), optimizer=lambda: keras.optimizers.RMSprop(1e-3)),
    "vit": Entry(vision_transformer, (224, 224, 3), optimizer=lambda: keras.optimizers.AdamW(1e-3)),
    "bert": Entry(transformer(30_000, 128, 256, 4, 4, False), (128,), (128,), "int32"),
    "recommender": Entry(recommender, (64,), (), "int32"),
    "wide_dense": Entry(wide_dense, (2048,)),
    "volume": Entry(volume, (64, 64, 64, 1)),
    "sound": Entry(sound, (16000, 1)),
    "autoencoder": Entry(autoencoder, (128, 128, 3), (128, 128)),
    "both_ways": Entry(both_ways, (200,), (), "int32"),
    # unseen: measured after everything was settled
    "tutorial_cnn": Entry(tutorial_cnn, (128, 128, 3)),
    "super_resolution": Entry(super_resolution, (96, 96, 3), (96, 96)),
    "odd_unet": Entry(odd_unet, (192, 192, 1), (192, 192)),
    "gru": Entry(gru, (120, 64)),
    "inceptionv3": Entry(application("InceptionV3", 299), (299, 299, 3)),
    "convnexttiny": Entry(application("ConvNeXtTiny"), (224, 224, 3)),
    "resnet101v2": Entry(application("ResNet101V2"), (224, 224, 3)),
    # without convolutions: for the largest batch, compiled
    "translator": Entry(translator, (160,), (160,), "int32"),
    "long_attention": Entry(long_attention, (1024, 32), optimizer=lambda: keras.optimizers.AdamW(1e-3)),
    "tabular": Entry(tabular, (700,), optimizer=lambda: keras.optimizers.SGD(1e-2, momentum=0.9)),
    "patches": Entry(patches, (64, 64, 3)),
    "linear_attention": Entry(linear_attention, (256,), (256,), "int32"),
    "efficientnetv2b0": Entry(application("EfficientNetV2B0"), (224, 224, 3)),
}

# the same with smaller samples, so that more of them fit on a CPU
ZOO |= {
    "small_unet": Entry(partial(unet, 64), (64, 64, 3), (64, 64)),
    "small_autoencoder": Entry(partial(autoencoder, 64), (64, 64, 3), (64, 64)),
    "small_tutorial_cnn": Entry(partial(tutorial_cnn, 48), (48, 48, 3)),
    "small_super_resolution": Entry(partial(super_resolution, 32), (32, 32, 3), (32, 32)),
    "small_wavenet": Entry(partial(wavenet, 1024), (1024, 1)),
    "small_bert": Entry(transformer(8_000, 64, 256, 4, 4, False), (64,), (64,), "int32"),
}


def setup(name: str, batch: int, policy: str = "float32") -> tuple[keras.Model, Any, Any]:
    """The compiled, built model of that name with one batch of made-up data."""
    keras.utils.clear_session()
    keras.mixed_precision.set_dtype_policy(policy)
    entry = ZOO[name]
    model = entry.build()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=entry.optimizer(), loss=loss, jit_compile=True)
    rng = np.random.default_rng(0)
    if entry.input_dtype == "float32":
        x = rng.standard_normal((batch, *entry.input_shape), dtype="float32")
    else:
        x = rng.integers(0, 8000, (batch, *entry.input_shape)).astype("int32")
    y = rng.integers(0, 10, (batch, *entry.target_shape)).astype("int32")
    return model, x, y
