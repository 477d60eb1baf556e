"""Advice about a model: every number in it was estimated; the model is left alone."""

import random
import re

import pytest

import legroom
from legroom.records.alternative import Alternative

pytestmark = pytest.mark.tensorflow


def flat(custom=None):
    """Most of it is the weights between Flatten and the first Dense."""
    import keras
    import numpy as np
    from keras import layers as L

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            L.Conv2D(16, 3, padding="same", activation="relu", name="stem"),
            L.Flatten(name="flat"),
            L.Dense(512, activation="relu", name="wide"),
            L.Dense(4, name="head"),
        ]
    )
    model.compile("adam", custom or "mse", jit_compile=False)
    return model, (np.ones((8, 32, 32, 3), "float32"), np.ones((8, 4), "float32"))


def pixels():
    """A label for each pixel, and a skip connection that wants even sizes."""
    import keras
    import numpy as np
    from keras import layers as L

    inputs = keras.Input((96, 96, 3))
    skip = L.Conv2D(16, 3, padding="same", name="first")(inputs)
    x = skip
    for _ in range(4):
        x = L.MaxPooling2D()(x)
    x = L.UpSampling2D(16)(x)
    model = keras.Model(inputs, L.Conv2D(2, 1, name="last")(L.Concatenate()([skip, x])))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model, (np.ones((4, 96, 96, 3), "float32"), np.zeros((4, 96, 96), "int32"))


def sizes(texts):
    return {text.partition(":")[0]: re.search(r"up to ([\d.]+ \wiB)", text).group(1) for text in texts}


@pytest.fixture(scope="module")
def advised():
    model, batch = flat()
    before = model.get_config()
    random.seed(1)
    drawn = random.getstate()
    planning = legroom.plan(model, batch, budget="2MiB", engine="op")
    return model, batch, planning, before, drawn == random.getstate()


def test_where_nothing_fits_the_layers_that_hold_most_and_three_alternatives_are_named(advised):
    model, _, planning, before, kept = advised
    assert planning.chosen is None
    first, *others = planning.advice
    assert "the most is held by `wide`" in first
    assert [text.partition(":")[0] for text in others] == [
        "if GlobalAveragePooling2D stood before `wide` instead of `flat`",
        "if the input were 24×24 instead of 32×32",
        "if `wide` were half as wide (256 units instead of 512)",
    ]
    assert model.get_config() == before
    assert kept


def test_the_numbers_are_those_of_models_that_are_made_so(advised):
    import keras
    from keras import layers as L

    from legroom.units import format_bytes

    _, (x, y), planning, _, _ = advised
    said = sizes(planning.advice[1:])
    made = keras.Sequential(
        [
            keras.Input((24, 24, 3)),
            L.Conv2D(16, 3, padding="same", activation="relu"),
            L.Flatten(),
            L.Dense(512, activation="relu"),
            L.Dense(4),
        ]
    )
    made.compile("adam", "mse", jit_compile=False)
    high = legroom.estimate(made, (x[:, :24, :24], y), budget="2MiB", engine="op").high_bytes
    assert said["if the input were 24×24 instead of 32×32"] == format_bytes(high)


def test_labels_of_pixels_shrink_with_the_input_and_odd_sizes_are_left_out():
    model, batch = pixels()
    planning = legroom.plan(model, batch, budget="1MiB", engine="op")
    assert any(text.startswith("if the input were 64×64 instead of 96×96: up to") for text in planning.advice)
    assert not any("72×72" in text for text in planning.advice)


def test_what_fits_is_advised_only_when_asked():
    model, batch = flat()
    assert legroom.plan(model, batch, budget="1GiB", engine="op").advice == ()
    asked = legroom.plan(model, batch, budget="1GiB", engine="op", advice=True)
    assert len(asked.advice) == 4
    assert all(text.endswith("(it would fit)") for text in asked.advice[1:])


def test_a_model_that_cannot_be_copied_gets_names_and_no_numbers():
    import keras
    import numpy as np

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(256, name="inner")

        def call(self, x):
            return self.inner(x)

    model = Own()
    model.compile("sgd", "mse", jit_compile=False)
    batch = (np.ones((8, 64), "float32"), np.ones((8, 256), "float32"))
    planning = legroom.plan(model, batch, budget="10KiB", engine="op")
    assert len(planning.advice) == 1
    assert "`inner`" in planning.advice[0]


def test_a_loss_of_the_users_own_is_copied_along():
    import keras

    def own(y, p):
        return keras.ops.mean((y - p) ** 2, axis=-1)

    model, batch = flat(own)
    planning = legroom.plan(model, batch, budget="2MiB", engine="op")
    assert len(planning.advice) == 4


def test_a_copy_that_trains_otherwise_or_puts_out_something_else_is_none():
    import keras

    from legroom.changes.alternatives import altered
    from legroom.errors import InputError
    from legroom.front.estimating import capture_here

    model, batch = flat()
    step = capture_here(model, batch, False).built()
    with pytest.raises(InputError, match="output would be another"):
        altered(step, Alternative("width", "head", (2,), ""))

    class Trains(keras.Sequential):
        def train_step(self, data):
            return super().train_step(data)

    own = Trains([keras.Input((4,)), keras.layers.Dense(8, name="wide"), keras.layers.Dense(1)])
    own.compile("sgd", "mse")
    import numpy as np

    step = capture_here(own, (np.ones((4, 4), "float32"), np.ones((4, 1), "float32")), False).built()
    with pytest.raises(InputError, match="cannot be copied"):
        altered(step, Alternative("width", "wide", (4,), ""))
