"""Terms of losses and layers that weigh nothing when they are tried out, and something later on: they are tried, too."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops
from loop_bench import precision

from legroom.changes.microbatch import split
from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow
X, Y = np.random.default_rng(0).normal(size=(2, 12, 6))
TERMS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda p: ops.sum(ops.square(p)),
    "spread": ops.std,
    "mean": lambda p: ops.mean(ops.abs(p)),
}


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    precision("float64")
    yield
    precision("float32")


class Weight:
    """Nothing in the first epoch."""

    def __init__(self, kind: str) -> None:
        import tensorflow as tf

        makes: dict[str, Callable[[], Any]] = {
            "tf.Variable": lambda: tf.Variable(0.0, dtype=tf.float64),
            "keras.Variable": lambda: keras.Variable(0.0),
            "attribute": lambda: 0.0,
        }
        self.beta = makes[kind]()

    def raised(self) -> keras.callbacks.Callback:
        def begin(epoch: int, _: Any = None) -> None:
            if isinstance(self.beta, float):
                self.beta = 0.3 * epoch
            else:
                self.beta.assign(0.3 * epoch)

        return keras.callbacks.LambdaCallback(on_epoch_begin=begin)


class Penalty(layers.Layer):  # type: ignore[misc]
    def __init__(self, weight: Weight, term: Callable[[Any], Any]) -> None:
        super().__init__()
        self.of, self.term = weight, term

    def call(self, x: Any) -> Any:
        self.add_loss(self.of.beta * self.term(x))
        return x


class Mixing(layers.Layer):  # type: ignore[misc]
    """More and more of the batch's mean."""

    def __init__(self, weight: Weight) -> None:
        super().__init__()
        self.of = weight

    def call(self, x: Any) -> Any:
        return x + self.of.beta * ops.mean(x, axis=0, keepdims=True)


class OwnLoss(keras.Model):  # type: ignore[misc]
    weight: Weight
    term: Callable[[Any], Any]

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        return ops.mean(ops.square(y - y_pred)) + self.weight.beta * self.term(y_pred)


def made(where: str, kind: str, term: Callable[[Any], Any]) -> tuple[Any, Weight]:
    keras.utils.set_random_seed(3)
    weight, x = Weight(kind), keras.Input((6,))
    y = layers.Dense(5, "tanh")(x)
    y = Penalty(weight, term)(y) if where == "layer" else Mixing(weight)(y) if where == "mixing" else y
    model = OwnLoss(x, layers.Dense(6)(y)) if where == "model" else keras.Model(x, layers.Dense(6)(y))
    if where == "model":
        model.weight, model.term = weight, term

    def loss(y: Any, p: Any) -> Any:
        return ops.mean(ops.square(y - p)) + weight.beta * term(p)

    eager = kind == "attribute"
    model.compile("adam", loss if where == "loss" else "mse", run_eagerly=eager, jit_compile=False)
    return model, weight


def trained(where: str, kind: str, term: Callable[[Any], Any], count: int) -> list[Any]:
    model, weight = made(where, kind, term)
    split(model, count)
    history = model.fit(X, Y, batch_size=6, epochs=3, shuffle=False, verbose=0, callbacks=[weight.raised()])
    return [*map(np.asarray, model.get_weights()), np.asarray(history.history["loss"])]


@pytest.mark.parametrize("kind", ["tf.Variable", "keras.Variable", "attribute"])
@pytest.mark.parametrize("where", ["loss", "layer", "model"])
def test_a_term_that_looks_at_several_samples_is_refused_before_it_weighs_anything(where: str, kind: str) -> None:
    with pytest.raises(InputError, match=r"not what they are now"):
        trained(where, kind, TERMS["spread"], 2)


@pytest.mark.parametrize("kind", ["tf.Variable", "attribute"])
def test_a_layer_that_will_mix_samples_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match=r"looks at several samples.*not what they are now"):
        trained("mixing", kind, TERMS["mean"], 2)


def test_a_sum_beside_a_mean_is_refused_in_a_loss_and_taken_as_a_sum_of_a_layer() -> None:
    with pytest.raises(InputError, match=r"not what they are now"):
        trained("loss", "tf.Variable", TERMS["sum"], 2)
    whole, sliced = (trained("layer", "tf.Variable", TERMS["sum"], count) for count in (1, 3))
    for one, other in zip(whole, sliced, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("where", ["loss", "layer", "model"])
def test_a_mean_that_weighs_something_later_trains_as_the_whole_batch(where: str) -> None:
    whole, sliced = (trained(where, "tf.Variable", TERMS["mean"], count) for count in (1, 3))
    for one, other in zip(whole, sliced, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-12)


def test_the_numbers_are_put_back() -> None:
    model, weight = made("loss", "tf.Variable", TERMS["mean"])
    split(model, 2)
    model.train_on_batch(X, Y)
    assert float(weight.beta) == 0.0


def test_a_number_of_pythons_in_a_graph_is_what_it_is_for_good() -> None:
    """As it is without Legroom: the step was traced with it."""
    model, weight = made("loss", "attribute", TERMS["spread"])
    model.compile("adam", model.loss, jit_compile=False)
    split(model, 2)
    assert np.isfinite(model.train_on_batch(X, Y))
    assert weight.beta == 0.0


@pytest.mark.parametrize("number", [1, 2, 9])
@pytest.mark.parametrize("where", ["loss", "layer"])
def test_a_phase_that_something_begins_in_is_tried(where: str, number: int) -> None:
    phase = keras.Variable(0, dtype="int32", trainable=False)

    def later(usual: Any, other: Any) -> Any:
        return ops.where(phase == number, other, usual)

    class Phased(layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return later(x, x - ops.mean(x, axis=0))

    def loss(y: Any, p: Any) -> Any:
        each = ops.mean(ops.square(y - p), axis=1)
        return later(ops.mean(each), ops.std(each))

    x = keras.Input((6,))
    y = layers.Dense(6)(x)
    model = keras.Model(x, Phased()(y) if where == "layer" else y)
    model.compile("sgd", loss if where == "loss" else "mse", jit_compile=False)

    def cut() -> None:
        split(model, 2)
        model.train_on_batch(X, Y)

    with pytest.raises(InputError, match="not what they are now"):
        cut()
    assert int(phase.value) == 0


class Phased(layers.Layer):  # type: ignore[misc]
    """Mixes samples in its phase 1, by a weight of the layer's own."""

    def build(self, _: Any) -> None:
        self.phase = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)
        self.share = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        return ops.where(self.phase == 1, x - ops.mean(x, axis=0), x)


class Sharing(Phased):
    def call(self, x: Any) -> Any:
        return x - self.share * ops.mean(x, axis=0)


def refused(kind: Callable[[], Any]) -> str:
    x = keras.Input((6,))
    model = keras.Model(x, kind()(layers.Dense(6)(x)))
    model.compile("sgd", "mse", jit_compile=keras.backend.backend() == "jax")
    split(model, 2)
    try:
        model.train_on_batch(X, Y)
    except InputError as error:
        return error.message
    return ""


@pytest.mark.parametrize("kind", [Phased, Sharing])
def test_a_layers_own_variable_that_a_callback_may_set_is_tried(kind: Callable[[], Any]) -> None:
    assert "looks at several samples" in refused(kind)


def refused_on_jax() -> list[str]:
    """In a process that has JAX."""
    return [refused(Phased), refused(Sharing)]
