"""Blocks that use tensors which they are not given as arguments, or hand them out in a way that has no gradient, on TensorFlow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from legroom.changes.remat import rematerialise
from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow

X = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")
Y = np.random.default_rng(1).normal(size=(12, 2)).astype("float32")
MODES: dict[str, dict[str, Any]] = {"graph": {"jit_compile": False}, "eager": {"run_eagerly": True}}
MODES["xla"] = {"jit_compile": True}


@dataclass
class Context:
    """An object of the user's that Keras does not look into."""

    tensor: Any


class Gate(layers.Layer):  # type: ignore[misc]
    """Multiplies by what it finds in its argument, or in its attribute."""

    def __init__(self) -> None:
        super().__init__(name="gate")
        self.dense = layers.Dense(4)
        self.context: Any = None

    def build(self, *_: Any, **__: Any) -> None:
        self.dense.build((None, 4))

    def call(self, x: Any, context: Any = None) -> Any:
        context = self.context if context is None else context
        if isinstance(context, Context):
            return self.dense(x) * context.tensor
        return self.dense(x) * (context() if callable(context) else context)


class Gated(keras.Model):  # type: ignore[misc]
    """What the gate multiplies by is up to `give`."""

    def __init__(self, give: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.give = give
        self.first, self.gate, self.last = layers.Dense(4, activation="tanh"), Gate(), layers.Dense(2)
        self.scale = self.add_weight(shape=(4,), initializer="ones", name="scale")
        self.rate = self.add_weight(shape=(4,), initializer="ones", name="rate", trainable=False)

    def call(self, x: Any) -> Any:
        h = self.first(x)
        return self.last(self.give(self, h))


def one_after_the_other(model: Any, h: Any) -> Any:
    for value in (0.5, tf.constant([1.0, 2.0, 3.0, 4.0]), 3.0):
        h = ops.tanh(put(model, h, value))
    return h


def put(model: Any, h: Any, context: Any) -> Any:
    model.gate.context = context
    found = model.gate(h)
    model.gate.context = None
    return found


LOST: dict[str, Callable[[Any, Any], Any]] = {
    "an object": lambda model, h: model.gate(h, context=Context(h * 2)),
    "a closure": lambda model, h: model.gate(h, context=lambda: h * 2),
    "the input again": lambda model, h: model.gate(h, context=lambda: h),
    "an attribute": lambda model, h: put(model, h, ops.tanh(h)),
    "an effective weight": lambda model, h: put(model, h, ops.tanh(model.scale)),
    "in a loop": lambda model, h: put(
        model, h, tf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, a * h), (0, h))[1]
    ),
}
KEPT: dict[str, Callable[[Any, Any], Any]] = {
    "a constant": lambda model, h: model.gate(h, context=Context(tf.constant([1.0, 2.0, 3.0, 4.0]) * 2.0)),
    "no gradient": lambda model, h: model.gate(h, context=Context(ops.stop_gradient(h) * 2.0)),
    "signs": lambda model, h: model.gate(h, context=Context(ops.cast(h > 0, "float32"))),
    "not trained": lambda model, h: model.gate(h, context=Context(model.rate * 2.0)),
    "an argument": lambda model, h: model.gate(h, context=h * 2),
    "attributes": one_after_the_other,
    "a variable": lambda model, h: model.gate(h, context=lambda: ops.tanh(model.scale)),
}


def trained(give: Callable[[Any, Any], Any], mode: str, changed: bool) -> list[Any]:
    keras.utils.set_random_seed(3)
    model = Gated(give)
    model(X)
    model.compile(keras.optimizers.SGD(1.0), "mse", **MODES[mode])
    if changed:
        rematerialise(model, [["gate"]])
    model.train_on_batch(X, Y)
    return [variable.numpy() for variable in model.variables]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOST)
def test_a_tensor_that_is_not_given_but_has_a_gradient_is_refused(name: str, mode: str) -> None:
    with pytest.raises(
        InputError, match="'gate' cannot be recomputed: its forward pass uses a tensor that it is not given"
    ):
        trained(LOST[name], mode, changed=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KEPT)
def test_a_tensor_without_a_gradient_is_let_pass(name: str, mode: str) -> None:
    plain, changed = (trained(KEPT[name], mode, changed) for changed in (False, True))
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(plain, changed, strict=True))


@pytest.mark.parametrize("compiled", [False, True])
def test_it_is_refused_in_a_forward_pass_whose_tape_is_outside(compiled: bool) -> None:
    model = Gated(LOST["an effective weight"])
    model(X)
    rematerialise(model, [["gate"]])
    forward = tf.function(lambda x: model(x, training=True), autograph=False, jit_compile=compiled)
    with pytest.raises(InputError, match="uses a tensor that it is not given"), tf.GradientTape():
        forward(X)


@pytest.mark.parametrize("mode", MODES)
def test_an_object_with_tensors_cannot_be_returned(mode: str) -> None:
    class Returning(layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return Context(2.0 * x)

    class Reading(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.top = Returning(name="inner"), layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.top(self.inner(x).tensor)

    model = Reading()
    model(X)
    model.compile("sgd", "mse", **MODES[mode])
    rematerialise(model, [["inner"]])
    with pytest.raises(InputError, match="'inner' cannot be recomputed: it returns a Context that holds tensors"):
        model.train_on_batch(X, Y)


@pytest.mark.parametrize("traced", [False, True])
def test_forward_accumulators_are_refused(traced: bool) -> None:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4, name="a"), layers.Dense(2, name="b")])
    rematerialise(model, [["a"]])

    def derivative() -> Any:
        kernel = model.layers[0].kernel.value
        with tf.autodiff.ForwardAccumulator(kernel, tf.ones_like(kernel)) as forward:
            y = model(X, training=True)
        return forward.jvp(y)

    with pytest.raises(InputError, match=r"'a' cannot be recomputed under a tf\.autodiff"):
        (tf.function(derivative, autograph=False) if traced else derivative)()


@pytest.mark.parametrize("blocks", [None, "dense", ["dense"], [[1]], [None], 3])
def test_what_is_no_list_of_blocks_is_refused(blocks: Any) -> None:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4, name="dense")])
    with pytest.raises(InputError, match="Blocks are lists of the names of segments"):
        rematerialise(model, blocks)
