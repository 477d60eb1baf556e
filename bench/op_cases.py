"""Steps that run op by op, for the accuracy tables: hand-written GradientTape loops of the kinds that tutorials show.

`CASES` maps a name to a function that makes (step, arguments); the step is wrapped in `tf.function` by whoever wants a graph.
"""

import itertools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import layers as L

Made = tuple[Callable[..., Any], tuple[Any, ...]]


def small_cnn(filters: tuple[int, ...] = (32, 64, 128), size: int = 64) -> keras.Model:
    layers: list[Any] = [keras.Input((size, size, 3))]
    for count in filters:
        layers += [L.Conv2D(count, 3, padding="same", activation="relu"), L.MaxPooling2D()]
    return keras.Sequential([*layers, L.Flatten(), L.Dense(256, activation="relu"), L.Dropout(0.5), L.Dense(10)])


def images(batch: int, size: int = 64) -> tuple[Any, Any]:
    return tf.random.normal((batch, size, size, 3)), tf.zeros((batch,), tf.int64)


def custom_loop() -> Made:
    model, optimizer = small_cnn(), keras.optimizers.Adam(1e-3)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)

    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train_step, images(32)


def accumulation() -> Made:
    """Four micro-batches, their gradients summed in variables, as the articles do."""
    model, optimizer = small_cnn((32, 64)), keras.optimizers.SGD(1e-2, momentum=0.9)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)
    sums = [tf.Variable(tf.zeros_like(v.value), trainable=False) for v in model.trainable_variables]

    def train_step(x: Any, y: Any) -> None:
        for part in range(4):
            with tf.GradientTape() as tape:
                rows = slice(part * 16, (part + 1) * 16)
                loss = loss_fn(y[rows], model(x[rows], training=True)) / 4
            for total, gradient in zip(sums, tape.gradient(loss, model.trainable_variables), strict=True):
                total.assign_add(gradient)
        optimizer.apply_gradients(zip([s.value() for s in sums], model.trainable_variables, strict=True))
        for total in sums:
            total.assign(tf.zeros_like(total))

    return train_step, images(64)


def raw_variables() -> Made:
    """No Keras at all: matrices, `assign_sub`."""
    sizes = (784, 2048, 2048, 1024, 10)
    weights = [tf.Variable(tf.random.normal((a, b), stddev=0.02)) for a, b in itertools.pairwise(sizes)]

    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            h = x
            for weight in weights[:-1]:
                h = tf.nn.relu(tf.matmul(h, weight))
            logits = tf.matmul(h, weights[-1])
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(1e-2 * gradient)
        return loss

    return train_step, (tf.random.normal((1024, 784)), tf.zeros((1024,), tf.int64))


def persistent() -> Made:
    """Two losses from one tape, gradients clipped."""
    body = keras.Sequential([keras.Input((512,)), *(L.Dense(1024, activation="gelu") for _ in range(4))])
    heads = [L.Dense(100), L.Dense(1)]
    for head in heads:
        head.build((None, 1024))
    variables = body.trainable_variables + [v for head in heads for v in head.trainable_variables]
    optimizer = keras.optimizers.AdamW(1e-3)
    optimizer.build(variables)

    def train_step(x: Any, y: Any) -> None:
        with tf.GradientTape(persistent=True) as tape:
            h = body(x, training=True)
            first = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, heads[0](h)))
            second = tf.reduce_mean(tf.square(heads[1](h)))
            loss = first + 0.1 * second
        gradients = tape.gradient(loss, variables)
        del tape
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    return train_step, (tf.random.normal((512, 512)), tf.zeros((512,), tf.int64))


def checkpointed() -> Made:
    """Blocks under `tf.recompute_grad`."""
    blocks = [
        keras.Sequential(
            [keras.Input((32, 32, 64)), *(L.Conv2D(64, 3, padding="same", activation="relu") for _ in range(2))]
        )
        for _ in range(4)
    ]
    stem, head = L.Conv2D(64, 3, padding="same"), L.Dense(10)
    stem.build((None, 32, 32, 3))
    head.build((None, 64))
    variables = [
        *stem.trainable_variables,
        *(v for b in blocks for v in b.trainable_variables),
        *head.trainable_variables,
    ]
    optimizer = keras.optimizers.SGD(1e-2)
    optimizer.build(variables)

    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            h = stem(x)
            for block in blocks:
                h = tf.recompute_grad(block)(h)
            logits = head(tf.reduce_mean(h, (1, 2)))
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return train_step, images(64, 32)


def gan() -> Made:
    """Two networks, two tapes in one step."""
    noise = 128
    maker = keras.Sequential(
        [
            keras.Input((noise,)),
            L.Dense(8 * 8 * 128),
            L.Reshape((8, 8, 128)),
            L.Conv2DTranspose(64, 4, strides=2, padding="same", activation="relu"),
            L.BatchNormalization(),
            L.Conv2DTranspose(3, 4, strides=2, padding="same", activation="tanh"),
        ]
    )
    judge = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            L.Conv2D(64, 4, strides=2, padding="same"),
            L.LeakyReLU(),
            L.Conv2D(128, 4, strides=2, padding="same"),
            L.LeakyReLU(),
            L.Flatten(),
            L.Dense(1),
        ]
    )
    optimizers = keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4)
    for optimizer, model in zip(optimizers, (maker, judge), strict=True):
        optimizer.build(model.trainable_variables)
    cross = keras.losses.BinaryCrossentropy(from_logits=True)

    def train_step(real: Any) -> None:
        with tf.GradientTape() as one, tf.GradientTape() as two:
            made = maker(tf.random.normal((tf.shape(real)[0], noise)), training=True)
            true, false = judge(real, training=True), judge(made, training=True)
            wanted = cross(tf.ones_like(false), false)
            judged = cross(tf.ones_like(true), true) + cross(tf.zeros_like(false), false)
        optimizers[0].apply_gradients(
            zip(one.gradient(wanted, maker.trainable_variables), maker.trainable_variables, strict=True)
        )
        optimizers[1].apply_gradients(
            zip(two.gradient(judged, judge.trainable_variables), judge.trainable_variables, strict=True)
        )

    return train_step, (tf.random.normal((128, 32, 32, 3)),)


CASES: dict[str, Callable[[], Made]] = {
    "custom_loop": custom_loop,
    "accumulation": accumulation,
    "raw_variables": raw_variables,
    "persistent": persistent,
    "checkpointed": checkpointed,
    "gan": gan,
}
