"""What code finds in Python, and steps that compute something else when that has changed."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import layers, ops
from loop_bench import Bench, arrays, difference, in_slices, precision

from legroom.changes.microbatch import split
from legroom.changes.python_state import COUNTED, NUMBERS, portrait
from legroom.errors import InputError

X = np.random.default_rng(0).normal(size=(12, 6))
Y = np.random.default_rng(1).normal(size=(12, 1))
simple = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    simple, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3)
)


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    precision("float64")
    yield
    precision("float32")


@given(values)
def test_a_value_is_what_it_was(value: Any) -> None:
    assert portrait(value) == portrait(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (False, True),
        (False, 0),
        (0.0, 0.5),
        (None, 0.5),
        ((1.0, 0.0), (1.0, 0.5)),
        ([], [1]),
        ({"mix": {"beta": 0.0}}, {"mix": {"beta": 1.0}}),
        ({1, 2}, {1, 3}),
        (np.bool_(False), np.bool_(True)),
        (np.float32(0), np.float32(0.5)),
        (np.zeros(2), np.array([0.0, 1.0])),
        (np.mean, np.max),
        ([np.mean], [np.mean, np.max]),
        (partial(np.mean, axis=0), partial(np.mean, axis=1)),
        (partial(np.sum, where=[True]), partial(np.sum, where=[False])),
    ],
)
def test_another_value_is_another(one: Any, other: Any) -> None:
    assert portrait(one) != portrait(other)


def test_large_arrays_are_not_looked_at() -> None:
    assert portrait(np.zeros(NUMBERS + 1)) == portrait(np.ones(NUMBERS + 1))


def test_an_object_is_not_held() -> None:
    class Tape:
        pass

    one = Tape()
    before = portrait(one)
    assert before == portrait(one)
    del one
    assert before != before  # noqa: PLR0124 - what it was of is gone, and no other one may pass for it


def each(t: Any, p: Any) -> Any:
    return ops.mean((t - p) ** 2, -1)


def hardest(t: Any, p: Any) -> Any:
    """Compares its samples."""
    return ops.mean(each(t, p)) + ops.max(each(t, p))


class Loss(keras.losses.Loss):  # type: ignore[misc]
    flag: Any = False

    def __init__(self, of: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self.of = of
        self.fn: Any = each
        self.terms = [each]
        self.weight: Any = None
        self.pair = (1.0, 0.0)
        self.truth = np.bool_(False)
        self.small = np.float32(0)
        self.power = 1.0

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.of(self, y_true, y_pred)


LOSSES: dict[str, tuple[Callable[[Any, Any, Any], Any], Callable[[Loss], Any]]] = {
    "a flag of the class": (
        lambda s, t, p: hardest(t, p) if s.flag else each(t, p),
        lambda s: setattr(s, "flag", True),
    ),
    "a truth of NumPy's": (
        lambda s, t, p: hardest(t, p) if s.truth else each(t, p),
        lambda s: setattr(s, "truth", np.bool_(True)),
    ),
    "nothing": (
        lambda s, t, p: each(t, p) if s.weight is None else each(t, p) + s.weight * ops.max(each(t, p)),
        lambda s: setattr(s, "weight", 0.5),
    ),
    "a pair": (
        lambda s, t, p: s.pair[0] * each(t, p) + s.pair[1] * ops.max(each(t, p)),
        lambda s: setattr(s, "pair", (1.0, 0.5)),
    ),
    "a number of NumPy's": (
        lambda s, t, p: each(t, p) + s.small * ops.max(each(t, p)),
        lambda s: setattr(s, "small", np.float32(0.5)),
    ),
    "an exponent": (lambda s, t, p: ops.mean(each(t, p)) ** s.power, lambda s: setattr(s, "power", 2.0)),
    "a list of functions": (
        lambda s, t, p: sum(ops.mean(term(t, p)) for term in s.terms),
        lambda s: s.terms.append(hardest),
    ),
    "a function": (lambda s, t, p: s.fn(t, p), lambda s: setattr(s, "fn", hardest)),
}


@pytest.mark.tensorflow
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("what", LOSSES)
def test_a_loss_that_finds_something_else_is_found_out_anew(what: str, eager: bool) -> None:
    of, change = LOSSES[what]
    loss = Loss(of)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
    model.compile("sgd", loss, run_eagerly=eager, jit_compile=False)
    split(model, 2)
    model.train_on_batch(X, Y)
    change(loss)
    if not eager:
        model.make_train_function(force=True)
    with pytest.raises(InputError, match="cannot be computed in slices"):
        model.train_on_batch(X, Y)


@pytest.mark.tensorflow
def test_a_function_that_a_layer_holds_and_that_is_replaced_is_found_out() -> None:
    class Own(layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.function: Any = ops.tanh

        def call(self, x: Any) -> Any:
            return self.function(x)

    layer = Own()
    model = keras.Sequential([keras.Input((6,)), layer, layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    split(model, 2)
    model.train_on_batch(X, Y)
    layer.function = lambda x: x - ops.mean(x, 0, keepdims=True)
    with pytest.raises(InputError, match="looks at several samples"):
        model.train_on_batch(X, Y)


@pytest.mark.tensorflow
def test_an_activation_of_keras_own_layer_that_is_replaced_is_found_out() -> None:
    layer = layers.Dense(4, "tanh")
    model = keras.Sequential([keras.Input((6,)), layer, layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    split(model, 2)
    model.train_on_batch(X, Y)
    layer.activation = lambda x: x - ops.mean(x, 0, keepdims=True)
    with pytest.raises(InputError, match="looks at several samples"):
        model.train_on_batch(X, Y)


@pytest.mark.tensorflow
def test_a_flag_that_a_models_own_step_finds_is_found_out() -> None:
    import tensorflow as tf

    class Own(keras.Model):  # type: ignore[misc]
        hard = False

        def train_step(self, data: Any) -> Any:
            x, y, *_ = data
            with tf.GradientTape() as tape:
                errors = tf.reduce_mean((self(x, training=True) - y) ** 2, -1)
                loss = tf.reduce_mean(errors) + (tf.reduce_max(errors) if self.hard else 0.0)
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}

    inputs = keras.Input((6,))
    model = Own(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", run_eagerly=True)
    split(model, 2)
    model.train_on_batch(X, Y)
    model.hard = True
    with pytest.raises(InputError, match="cannot be run in slices"):
        model.train_on_batch(X, Y)


class Holder:
    """What a training script keeps its things in."""


def plainly(y: Any, p: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean((p - y) ** 2)


def spread(y: Any, p: Any) -> Any:
    import tensorflow as tf

    return plainly(y, p) + tf.reduce_mean(tf.math.reduce_std(p, 0))


class Settings:
    """Used as it is, without an object of it."""

    beta = 0.0


@dataclass(slots=True)
class Slotted:
    beta: float = 0.0


class Schedule:
    def __init__(self) -> None:
        self.beta = 0.0

    def __call__(self) -> float:
        return self.beta


def setting(kind: str) -> tuple[Callable[[], float], Callable[[], Any]]:
    """How a step finds the weight of a term, and what changes it."""
    if kind == "class":
        return lambda: Settings.beta, lambda: setattr(Settings, "beta", 0.5)
    if kind == "slots":
        slotted = Slotted()
        return lambda: slotted.beta, lambda: setattr(slotted, "beta", 0.5)
    if kind == "called":
        schedule = Schedule()
        return lambda: 1.0 * schedule(), lambda: setattr(schedule, "beta", 0.5)
    if kind == "in a list":
        terms = [Schedule()]
        return lambda: sum(term.beta for term in terms), lambda: setattr(terms[0], "beta", 0.5)
    if kind == "deep":
        settings = {"loss": {"aux": {"beta": 0.0}}}
        return lambda: settings["loss"]["aux"]["beta"], lambda: settings["loss"]["aux"].update(beta=0.5)
    if kind == "deque":
        values = deque([0.0])
        return lambda: values[-1], lambda: values.append(0.5)
    named = Schedule()
    return lambda: getattr(named, "beta"), lambda: setattr(named, "beta", 0.5)  # noqa: B009 - as scripts do


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", ["class", "slots", "called", "in a list", "deep", "deque", "getattr"])
def test_wherever_an_eager_loop_finds_its_settings_they_are_watched(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "beta", 0.0)
    read, change = setting(kind)
    step = in_slices(Bench().step(lambda y, p: plainly(y, p) + read() * spread(y, p)))
    step(*arrays())
    change()
    with pytest.raises(InputError, match="cannot be run in slices"):
        step(*arrays())


@pytest.mark.tensorflow
def test_a_number_that_a_layer_inside_the_model_holds_is_watched() -> None:
    class Decorrelating(layers.Layer):  # type: ignore[misc]
        beta = 0.0

        def call(self, x: Any) -> Any:
            return x - self.beta * ops.mean(x, 0, keepdims=True)

    bench = Bench(Decorrelating)
    step = in_slices(bench.step(plainly))
    step(*arrays())
    bench.model.layers[1].beta = 0.5
    with pytest.raises(InputError, match="cannot be run in slices"):
        step(*arrays())


@pytest.mark.tensorflow
def test_an_object_that_an_eager_step_is_given_is_watched() -> None:
    bench, schedule = Bench(), Schedule()

    def step(x: Any, y: Any, given: Any) -> Any:
        return bench.step(lambda y, p: plainly(y, p) + given.beta * spread(y, p))(x, y)

    parts = in_slices(step)
    parts(*arrays(), schedule)
    schedule.beta = 0.5
    with pytest.raises(InputError, match="cannot be run in slices"):
        parts(*arrays(), schedule)


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", [int, float])
def test_a_number_that_a_step_is_given_and_that_is_another_each_time_is_not_tried_out_for_ever(kind: type) -> None:
    bench = Bench()

    def step(x: Any, y: Any, weight: Any) -> Any:
        return bench.step(lambda y, p: weight * plainly(y, p))(x, y)

    parts = in_slices(step)
    for number in range(1, 12):
        parts(*arrays(), kind(number))
    assert len(parts.legroom_step.known) <= (1 if kind is float else COUNTED + 1)


@pytest.mark.tensorflow
@pytest.mark.parametrize("what", ["a number", "a function", "an element of an array"])
def test_an_eager_loop_that_finds_something_else_is_found_out_anew(what: str) -> None:
    bench, held = Bench(), Holder()
    held.beta, held.loss, held.weights = 0.0, plainly, np.zeros(2)  # type: ignore[attr-defined]
    step = in_slices(
        bench.step(lambda y, p: held.loss(y, p) + (held.beta + held.weights[1]) * spread(y, p))  # type: ignore[attr-defined]
    )
    step(*arrays())
    if what == "a number":
        held.beta = 0.5  # type: ignore[attr-defined]
    elif what == "a function":
        held.loss = spread  # type: ignore[attr-defined]
    else:
        held.weights[1] = 0.5  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="cannot be run in slices"):
        step(*arrays())


@pytest.mark.tensorflow
def test_a_model_that_is_replaced_by_a_deeper_one_goes_on_in_slices() -> None:
    import tensorflow as tf

    def trained(how: Callable[[Any], Any]) -> list[Any]:
        held = Holder()

        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = plainly(y, held.model(x))  # type: ignore[attr-defined]
            weights = held.model.trainable_variables  # type: ignore[attr-defined]
            held.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))  # type: ignore[attr-defined]
            return loss

        keras.utils.set_random_seed(1)
        function = how(step)
        for depth in (1, 2):
            inner = [layers.Dense(4, "tanh") for _ in range(depth)]
            held.model = keras.Sequential([keras.Input((5,)), *inner, layers.Dense(3)])  # type: ignore[attr-defined]
            held.optimizer = keras.optimizers.Adam(0.01)  # type: ignore[attr-defined]
            for seed in range(2):
                function(*arrays(seed=seed))
        return [variable.numpy() for variable in held.model.variables]  # type: ignore[attr-defined]

    assert difference(trained(lambda step: step), trained(in_slices)) < 1e-11
