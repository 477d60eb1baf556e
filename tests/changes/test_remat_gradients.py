"""One step of a rematerialised model changes every variable as the plain model's does: weights, statistics, seeds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from legroom.changes.remat import rematerialise, segments_of

pytestmark = pytest.mark.tensorflow

MODES: dict[str, dict[str, Any]] = {
    "graph": {"jit_compile": False},
    "eager": {"run_eagerly": True, "jit_compile": False},
    "xla": {"jit_compile": True},
}
CASES: dict[str, Callable[[], "Case"]] = {}


@dataclass
class Case:
    """A model, its data, and blocks as ranges of its segments."""

    model: Any
    x: Any
    y: Any
    blocks: list[tuple[int, int]]
    tolerance: float = 1e-3
    loss: Any = "mse"


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def numbers(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(keras.config.floatx())


@case
def chain() -> Case:
    model = keras.Sequential([keras.Input((8, 8, 3))])
    for _ in range(3):
        model.add(layers.Conv2D(6, 3, padding="same"))
        model.add(layers.BatchNormalization())
        model.add(layers.ReLU())
        model.add(layers.Dropout(0.4))
    model.add(layers.Flatten())
    model.add(layers.Dense(3))
    return Case(model, numbers(6, 8, 8, 3), numbers(6, 3), [(0, 4), (4, 8), (9, 14)])


@case
def residual() -> Case:
    x = inputs = keras.Input((8, 8, 4))
    for _ in range(3):
        skip = x
        x = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same", activation="relu")(x))
        x = layers.Add()([skip, layers.Dropout(0.3)(x)])
    outputs = layers.Dense(2)(layers.GlobalAveragePooling2D()(x))
    return Case(keras.Model(inputs, outputs), numbers(5, 8, 8, 4), numbers(5, 2), [(1, 6), (6, 8), (8, 12)])


@case
def nested() -> Case:
    small = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, activation="gelu"), layers.Dropout(0.5), layers.Dense(6)]
    )
    inner = keras.Input((6,))
    middle = keras.Model(inner, layers.Add()([inner, layers.BatchNormalization()(layers.Dense(6)(inner))]))
    inputs = keras.Input((6,))
    outputs = layers.Dense(2)(middle(layers.LayerNormalization()(small(inputs))))
    # within the first nested model; then a layer and the whole of the second one
    return Case(keras.Model(inputs, outputs), numbers(7, 6), numbers(7, 2), [(0, 2), (3, 7)])


@case
def several_inputs_and_outputs() -> Case:
    one, two = keras.Input((5,), name="one"), keras.Input((4,), name="two")
    left, right = layers.Dense(6, activation="tanh")(one), layers.Dense(6)(two)
    both = layers.Dropout(0.2)(layers.Concatenate()([left, right]))
    model = keras.Model(
        {"one": one, "two": two}, [layers.Dense(2)(both), layers.Dense(3)(layers.Multiply()([left, right]))]
    )
    x = {"one": numbers(6, 5), "two": numbers(6, 4)}
    return Case(model, x, [numbers(6, 2), numbers(6, 3)], [(0, 3), (3, 6)], loss=["mse", "mse"])


@case
def attention_with_a_mask() -> Case:
    tokens = keras.Input((7,), dtype="int32")
    x = layers.Embedding(11, 8, mask_zero=True)(tokens)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4, dropout=0.2)(x, x)])
    x = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.Dense(8)(layers.Dense(16, activation="gelu")(x))])
    outputs = layers.Dense(2)(layers.GlobalAveragePooling1D()(x))
    data = np.random.default_rng(1).integers(0, 11, (6, 7)).astype("int32")
    return Case(keras.Model(tokens, outputs), data, numbers(6, 2), [(0, 3), (3, 7), (7, 9)])


@case
def shared_layer() -> Case:
    inputs = keras.Input((6,))
    shared, noise = layers.Dense(6, activation="tanh"), layers.Dropout(0.3)
    x = noise(shared(inputs))
    x = noise(shared(layers.LayerNormalization()(x)))
    return Case(keras.Model(inputs, layers.Dense(1)(x)), numbers(5, 6), numbers(5, 1), [(0, 2), (2, 5)])


@case
def regularised() -> Case:
    model = keras.Sequential([keras.Input((6,))])
    model.add(layers.Dense(8, activation="relu", kernel_regularizer="l2", activity_regularizer="l2"))
    model.add(layers.ActivityRegularization(l1=0.1))
    model.add(layers.Dense(5, kernel_regularizer="l1"))
    model.add(layers.Dense(2, activity_regularizer="l1"))
    return Case(model, numbers(6, 6), numbers(6, 2), [(0, 3), (3, 4)])


class Penalised(keras.layers.Layer):  # type: ignore[misc]
    """Adds losses of its own, and has no `training` argument though its dropout needs one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.dense, self.dropout = layers.Dense(6), layers.Dropout(0.5)

    def build(self, shape: Any) -> None:
        self.dense.build(shape)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape

    def call(self, x: Any) -> Any:
        x = self.dropout(self.dense(x))
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(x)))
        return x


@case
def added_losses() -> Case:
    inputs = keras.Input((6,))
    x = Penalised()(layers.Dense(6)(inputs))
    return Case(keras.Model(inputs, layers.Dense(2)(Penalised()(x))), numbers(6, 6), numbers(6, 2), [(0, 2), (2, 3)])


@case
def operations_and_noise() -> Case:
    inputs = keras.Input((6, 4))
    x = layers.GaussianNoise(0.5)(keras.ops.tanh(layers.Dense(5)(inputs)))
    x = layers.SpatialDropout1D(0.3)(x * 2.0 + 1.0)
    x = keras.ops.concatenate([x, keras.ops.flip(x, axis=1)], axis=-1)
    outputs = layers.Dense(2)(layers.GaussianDropout(0.2)(layers.Flatten()(x)))
    return Case(keras.Model(inputs, outputs), numbers(5, 6, 4), numbers(5, 2), [(0, 4), (4, 9)])


@case
def recurrent() -> Case:
    tokens = keras.Input((5,), dtype="int32")
    x = layers.Embedding(9, 6, mask_zero=True)(tokens)
    x = layers.LSTM(5, return_sequences=True, dropout=0.2, recurrent_dropout=0.2)(x)
    outputs = layers.Dense(1)(layers.Bidirectional(layers.GRU(4))(x))
    data = np.random.default_rng(1).integers(0, 9, (4, 5)).astype("int32")
    return Case(keras.Model(tokens, outputs), data, numbers(4, 1), [(1, 2), (2, 4)])


class Feedforward(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.norm, self.dense, self.dropout = layers.BatchNormalization(), layers.Dense(6), layers.Dropout(0.4)

    def call(self, x: Any, scale: float = 1.0, training: bool | None = None) -> Any:
        return x + scale * self.dropout(self.dense(self.norm(x, training=training)), training=training)


class Subclassed(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.stem = keras.Sequential(
            [keras.Input((6,)), layers.Dense(6, activation="relu"), layers.Dropout(0.3), layers.Dense(6)]
        )
        self.parts = [Feedforward(name="part_0"), Feedforward(name="part_1")]
        self.top = layers.Dense(2)

    def call(self, x: Any, training: bool | None = None) -> Any:
        x = self.stem(x, training=training)
        for part in self.parts:
            x = part(x, scale=0.5)
        return self.top(x)


@case
def subclassed() -> Case:
    model = Subclassed()
    model(numbers(5, 6))
    return Case(model, numbers(5, 6), numbers(5, 2), [(0, 2), (3, 4), (4, 5)])


class Masked(keras.Model):  # type: ignore[misc]
    """Attention takes the mask off the tensor that it is given, so that the layer after it sees none; a layer that does nothing is the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.table = layers.Embedding(9, 4, mask_zero=True)
        self.nothing = layers.Dropout(0.0)
        self.first = layers.MultiHeadAttention(2, 3)
        self.second = layers.GroupQueryAttention(3, 4, 2)
        self.top = layers.Dense(2)

    def call(self, ids: Any) -> Any:
        words = self.table(ids)
        same = self.nothing(words)
        return self.top(keras.ops.mean(self.second(self.first(same, same), words), axis=1))


@case
def masks_that_are_taken_off() -> Case:
    ids = np.random.default_rng(0).integers(1, 9, (5, 7)).astype("int32")
    ids[:, 4:] *= np.arange(15).reshape(5, 3) % 2
    model = Masked()
    model(ids)
    return Case(model, ids, numbers(5, 2), [(1, 2), (2, 3), (3, 4)], tolerance=1e-4)


class Mixed(keras.layers.Layer):  # type: ignore[misc]
    """Takes and returns more than tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(6, activation="tanh")

    def build(self, shape: Any) -> None:
        self.dense.build(shape)

    def call(self, x: Any, extra: Any = None, add: float = 0.5) -> Any:
        return {"x": self.dense(x), "both": (x, [extra, add]), "nothing": None, "scale": 3, "name": "mixed"}


class Mixture(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.mixed, self.again, self.top = Mixed(), Mixed(), layers.Dense(2)

    def call(self, x: Any) -> Any:
        one = self.mixed(x, extra={"tensor": keras.ops.tanh(x)})
        extra, add = one["both"][1]
        two = self.again(one["x"] * one["scale"] + add + extra["tensor"])
        if (two["nothing"], two["name"], two["both"][1]) != (None, "mixed", [None, 0.5]):
            raise AssertionError(two)
        return self.top(two["x"] + two["both"][0])


@case
def more_than_tensors() -> Case:
    model = Mixture()
    model(numbers(5, 6))
    return Case(model, numbers(5, 6), numbers(5, 2), [(0, 1), (1, 2)])


@case
def frozen_backbone() -> Case:
    base = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(4)]
    )
    base.layers[0].trainable = False
    inputs = keras.Input((6,))
    return Case(
        keras.Model(inputs, layers.Dense(2)(base(inputs, training=False))), numbers(6, 6), numbers(6, 2), [(0, 4)]
    )


@case
def bfloat16() -> Case:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        found = chain()
    finally:
        keras.config.set_dtype_policy("float32")
    return Case(found.model, found.x, found.y, found.blocks, tolerance=0.05)


@case
def float64() -> Case:
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        found = residual()
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
    return Case(found.model, found.x, found.y, found.blocks, tolerance=1e-11)


def made(name: str, mode: str, rematerialised: bool) -> Case:
    keras.utils.set_random_seed(7)
    case = CASES[name]()
    if rematerialised:
        names = [segment.name for segment in segments_of(case.model)]
        rematerialise(case.model, [names[start:stop] for start, stop in case.blocks])
    case.model.compile(keras.optimizers.SGD(1.0), case.loss, **MODES[mode])
    return case


def changes(name: str, mode: str, rematerialised: bool, steps: int = 1) -> tuple[list[Any], float]:
    """How far each variable moves in training, and the loss."""
    case = made(name, mode, rematerialised)
    before = [np.asarray(variable.numpy(), "float64") for variable in case.model.variables]
    loss = 0.0
    for _ in range(steps):
        loss = case.model.train_on_batch(case.x, case.y)
    after = [np.asarray(variable.numpy(), "float64") for variable in case.model.variables]
    return [new - old for new, old in zip(after, before, strict=True)], float(np.ravel(loss)[0])


def worst(name: str, mode: str) -> float:
    """The largest difference of a tensor's change, relative to it; changes that are nothing but rounding are left out."""
    plain, loss = changes(name, mode, rematerialised=False)
    other, other_loss = changes(name, mode, rematerialised=True)
    floor = 1e-6 * max(np.linalg.norm(change) for change in plain)
    assert any(np.linalg.norm(change) > 0 for change in plain)
    off = [np.linalg.norm(a - b) / max(np.linalg.norm(a), floor) for a, b in zip(plain, other, strict=True)]
    small = [np.linalg.norm(a) <= floor for a in plain]
    found = max(value for value, rounding in zip(off, small, strict=True) if not rounding)
    return float(max(found, abs(loss - other_loss) / max(abs(loss), 1e-12)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_step_is_the_same(name: str, mode: str) -> None:
    assert worst(name, mode) <= CASES[name]().tolerance


QUICK_XLA = ("attention_with_a_mask", "subclassed")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK_XLA else pytest.mark.slow)
        for name in CASES
        if name != "recurrent"  # Keras does not compile LSTM and GRU on TensorFlow
    ],
)
def test_a_compiled_step_is_the_same(name: str) -> None:
    assert worst(name, "xla") <= CASES[name]().tolerance


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_another_mask_in_the_second_run_would_be_seen(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from legroom.changes import remat_tensorflow

    right = remat_tensorflow.after

    def with_other_seeds(upstream: Any, tensors: Any) -> list[Any]:
        return [tensor + 1 if tensor.dtype.is_integer else tensor for tensor in right(upstream, tensors)]

    monkeypatch.setattr(remat_tensorflow, "after", with_other_seeds)
    assert worst("chain", mode) > 0.1
