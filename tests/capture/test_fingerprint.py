"""A fingerprint stands for a step: it changes with everything that changes the step, and is refused where that cannot be known."""

import keras
import pytest
from keras import layers

from legroom.capture.batch import ArraySpec
from legroom.capture.fingerprint import fingerprint, is_stock
from legroom.capture.keras_fit import capture_model

pytestmark = pytest.mark.tensorflow


def taken(*stack, batch=4, optimizer="adam", loss="mse", change=None):
    keras.utils.clear_session()
    model = keras.Sequential([keras.Input((6,)), *(make() for make in stack), layers.Dense(2)])
    if change:
        change(model)
    model.compile(optimizer, loss)
    return fingerprint(capture_model(model, (ArraySpec((batch, 6), "float32"), ArraySpec((batch, 2), "float32"))))


def plain():
    return taken(lambda: layers.Dense(3))


def test_the_same_step_has_the_same():
    assert plain() is not None
    assert plain() == plain()


@pytest.mark.parametrize(
    "other",
    [
        lambda: taken(lambda: layers.Dense(4)),
        lambda: taken(lambda: layers.Dense(3, activation="relu")),
        lambda: taken(lambda: layers.Dense(3), batch=5),
        lambda: taken(lambda: layers.Dense(3), optimizer="sgd"),
        lambda: taken(lambda: layers.Dense(3), loss="mae"),
        lambda: taken(lambda: layers.Dense(3, dtype="mixed_float16")),
        lambda: taken(lambda: layers.Dense(3), change=lambda model: setattr(model.layers[0], "trainable", False)),
    ],
)
def test_another_step_has_another(other):
    assert other() not in (plain(), None)


def own(x):
    return x * 2


@pytest.mark.parametrize(
    "custom",
    [
        lambda: taken(lambda: layers.Dense(3, activation=own)),
        lambda: taken(lambda: layers.Lambda(own)),
        lambda: taken(lambda: layers.Dense(3, kernel_regularizer=own)),
        lambda: taken(loss=lambda y, p: keras.ops.mean(y - p)),
        lambda: taken(lambda: type("Mine", (layers.Dense,), {})(3)),
    ],
)
def test_code_of_the_users_own_has_none(custom):
    assert custom() is None


def test_a_layer_that_is_recomputed_is_not_stock():
    with keras.RematScope("full"):
        recomputed = layers.Dense(3)
    assert is_stock(layers.Dense(3))
    assert not is_stock(recomputed)
