"""Which layers run code of the user's that draws random numbers, so that micro-batches are "equivalent" and not "exact"."""

import random
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from keras.random import gamma
from tensorflow.nn import relu

from legroom.changes.microbatch import exactness, split
from legroom.changes.own_code import code_of

pytestmark = pytest.mark.tensorflow


class ByHelper(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return self.perturbed(x)

    def perturbed(self, x: Any) -> Any:
        return x + tf.random.normal(tf.shape(x))


class Shaken:
    """No layer."""

    def shake(self, x: Any) -> Any:
        return tf.random.shuffle(x)


class ByObject(layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.other = Shaken()

    def call(self, x: Any) -> Any:
        return self.other.shake(x)


class ByImport(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return x * gamma((8,), 1.0)


class Inside(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        from random import betavariate

        return x * betavariate(1.0, 1.0)


class WithGenerator(layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.numbers = np.random.default_rng(0)

    def call(self, x: Any) -> Any:
        return x * self.numbers.normal()


class WithDropout(layers.Layer):  # type: ignore[misc]
    """As in every guide: what it holds speaks for itself."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dense, self.dropout, self.random_layers = layers.Dense(8), layers.Dropout(rate), [layers.Dropout(rate)]

    def call(self, x: Any, training: bool = False) -> Any:
        for layer in self.random_layers:
            x = layer(x, training=training)
        return self.apply_dropout(self.dense(x), training)

    def apply_dropout(self, x: Any, training: bool) -> Any:
        return self.dropout(x, training=training)


class DroppingByCode(layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.dropout = 0.3

    def call(self, x: Any) -> Any:
        return tf.nn.dropout(x, self.dropout)


class OwnDropout(layers.Dropout):  # type: ignore[misc]
    pass


class Initialised(layers.Layer):  # type: ignore[misc]
    def build(self, _: Any) -> None:
        self.factor = self.add_weight(shape=(8,), initializer=keras.initializers.RandomNormal())

    def call(self, x: Any) -> Any:
        return relu(x) * self.factor


def noisy(x: Any) -> Any:
    return x + keras.random.normal(ops.shape(x))


def attending() -> Any:
    inputs = keras.Input((8,))
    x = layers.Reshape((2, 4))(inputs)
    return keras.Model(inputs, layers.MultiHeadAttention(2, 4)(x, x))


DRAWING: dict[str, Any] = {
    "a method": ByHelper,
    "an object": ByObject,
    "a function imported": ByImport,
    "imported inside": Inside,
    "a rate of its own": DroppingByCode,
    "a generator": WithGenerator,
    "an activation": lambda: layers.Dense(3, activation=noisy),
    "a lambda": lambda: layers.Lambda(lambda x: x + tf.random.normal(tf.shape(x))),
    "python": lambda: layers.Lambda(lambda x: x * random.random()),
    "keras' within": lambda: WithDropout(0.5),
    "a class of keras'": lambda: OwnDropout(0.5),
}
STILL: dict[str, Any] = {
    "keras' without a rate": lambda: WithDropout(0.0),
    "a class of keras' without": lambda: OwnDropout(0.0),
    "initialisers": Initialised,
    "an initialiser of one's own": lambda: layers.Dense(3, kernel_initializer=lambda s, dtype: keras.random.normal(s)),
    "a lambda": lambda: layers.Lambda(lambda x: ops.softmax(x) * np.pi),
    "attention": attending,
    "flipped always": lambda: layers.Lambda(lambda x: ops.flip(x, -1)),
    "recurrent": lambda: keras.Sequential([layers.Reshape((2, 4)), layers.Bidirectional(layers.LSTM(3))]),
}


def said_of(layer: Any) -> str:
    return str(exactness(keras.Sequential([keras.Input((8,)), layer]))[0])


@pytest.mark.parametrize("name", DRAWING)
def test_code_that_draws_random_numbers_is_only_equivalent(name: str) -> None:
    assert said_of(DRAWING[name]()) == "equivalent"


@pytest.mark.parametrize("name", STILL)
def test_what_draws_none_is_exact(name: str) -> None:
    assert said_of(STILL[name]()) == "exact"


@pytest.mark.parametrize("name", ["call", "compute_loss", "train_step"])
def test_a_models_own_methods_count_if_they_run_in_a_step(name: str) -> None:
    def method(self: Any, *_: Any, **__: Any) -> Any:
        return tf.random.normal(())

    model = type("Own", (keras.Model,), {name: method})()
    assert exactness(model)[0] == "equivalent"


def test_those_that_do_not_run_in_a_step_do_not() -> None:
    model = type("Own", (keras.Model,), {"generate": lambda self: tf.random.normal(())})()
    assert exactness(model)[0] == "exact"


def test_what_legroom_has_put_in_place_is_not_the_users() -> None:
    model = keras.Sequential([keras.Input((8,)), layers.Dense(3)])
    model.compile("sgd", "mse")
    split(model, 2)
    assert exactness(model) == ("exact", ())


def test_a_function_that_calls_itself_is_read_once() -> None:
    def again(x: Any) -> Any:
        return again(x)

    assert "again" not in code_of(layers.Lambda(again)).names
