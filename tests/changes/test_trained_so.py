"""A plan stays on a model that is compiled anew or whose layers are frozen: what was found out before is found out anew."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops
from loop_bench import Bench, arrays, in_slices, precision

from legroom.changes.microbatch import split
from legroom.changes.python_state import COUNTED, PythonState
from legroom.changes.trained_so import TrainedSo, trained_so
from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow
WORDS = np.random.default_rng(0).integers(1, 20, (12, 6))
Y = np.random.default_rng(1).normal(size=(12, 1))
Phase = dict[str, Any]  # which layers are trained, and by which loss


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    precision("float64")
    yield
    precision("float32")


class Own(keras.Model):  # type: ignore[misc]
    def train_step(self, data: Any) -> Any:
        import tensorflow as tf

        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class Summing(keras.Model):  # type: ignore[misc]
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        return super().compute_loss(x, y, y_pred)


class Positions(layers.Layer):  # type: ignore[misc]
    """Words and their places: a table that is looked up alike for every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = layers.Embedding(20, 8), layers.Embedding(6, 8)

    def build(self, shape: Any) -> None:
        self.words.build(shape)
        self.places.build((6,))

    def call(self, x: Any) -> Any:
        return self.words(x) + self.places(ops.arange(6))


def trained(kind: Callable[..., Any], phases: list[Phase], count: int, *, eager: bool) -> list[Any]:
    keras.utils.set_random_seed(7)
    x = keras.Input((6,), dtype="int32")
    inner, head = Positions(), layers.Dense(1, use_bias=False)
    model = kind(x, head(layers.GlobalAveragePooling1D()(inner(x))))
    model.compile("adam", "mse")
    split(model, count)
    for phase in phases:
        which = phase.get("trained", "words places head")
        inner.words.trainable, inner.places.trainable = "words" in which, "places" in which
        head.trainable = "head" in which
        loss = phase.get("loss", "mse")
        loss = keras.losses.MeanSquaredError(reduction="sum") if loss == "sum" else loss
        model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=eager, jit_compile=False)
        history = model.fit(WORDS, Y, batch_size=6, epochs=2, shuffle=False, verbose=0).history["loss"]
    return [*map(np.asarray, model.get_weights()), np.asarray(history)]


PHASES: dict[str, list[Phase]] = {
    "another weight": [{"trained": "head"}, {"trained": "places"}],
    "more weights": [{"trained": "head"}, {}],
    "a sum after a mean": [{}, {"loss": "sum"}],
    "a mean after a sum": [{"loss": "sum"}, {}],
}


QUICK = [(keras.Model, "another weight", True), (keras.Model, "more weights", True), (Own, "a sum after a mean", False)]
QUICK += [(Own, "more weights", True), (Summing, "a mean after a sum", False)]
REST = [(kind, name, eager) for kind in (keras.Model, Own, Summing) for name in PHASES for eager in (False, True)]


@pytest.mark.parametrize(
    ("kind", "name", "eager"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST if case not in QUICK)],
)
def test_a_second_phase_trains_as_the_whole_batch(kind: Any, name: str, eager: bool) -> None:
    whole, sliced = (trained(kind, PHASES[name], count, eager=eager) for count in (1, 2))
    for one, other in zip(whole, sliced, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [keras.Model, Own, Summing])
def test_a_second_phase_whose_loss_cannot_be_cut_is_refused(kind: Any) -> None:
    def spread(y: Any, p: Any) -> Any:
        return ops.mean(ops.square(y - p)) + ops.std(p)

    with pytest.raises(InputError, match=r"cannot be (computed|run) in slices"):
        trained(kind, [{}, {"loss": spread}], 2, eager=False)


def compared_on_jax() -> list[float]:
    """The worst differences, in a process that has JAX: where all shapes are as they were, too."""
    worst = []
    for name in ("a sum after a mean", "another weight"):
        whole, sliced = (trained(keras.Model, PHASES[name], count, eager=False) for count in (1, 2))
        pairs = zip(whole, sliced, strict=True)
        worst.append(max(float(np.abs(one - other).max() / np.abs(one).max()) for one, other in pairs))
    return worst


def test_models_are_trained_so_for_as_long_as_weights_loss_and_optimizer_are_the_same() -> None:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2), layers.Dense(1)])
    model.compile("sgd", "mse")
    before = trained_so([model])
    assert before == trained_so([model])
    assert hash(before) == hash(trained_so([model]))
    model.layers[0].trainable = False
    assert before != trained_so([model])
    model.layers[0].trainable = True
    assert before == trained_so([model])
    model.compile(model.optimizer, "mse")
    assert before != trained_so([model])


def test_equal_objects_are_not_the_same() -> None:
    assert TrainedSo([1]) != TrainedSo([1])


class Mining(keras.losses.Loss):  # type: ignore[misc]
    """Of the samples that are hard alone, from some time on."""

    def __init__(self, switch: Any) -> None:
        super().__init__()
        self.phase = switch

    def call(self, y: Any, p: Any) -> Any:
        each = ops.square(y - p)[:, 0]
        if self.phase in (False, 0, "all"):
            return each
        hard = ops.cast(each > 0.1, each.dtype)
        return ops.sum(each * hard) / (ops.sum(hard) + 1e-9)


@pytest.mark.parametrize(("switch", "later"), [(False, True), (0, 1), ("all", "hard")])
@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
def test_a_loss_that_is_switched_over_is_found_out_anew(switch: Any, later: Any, eager: bool) -> None:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
    loss = Mining(switch)
    model.compile("sgd", loss, run_eagerly=eager, jit_compile=False)
    split(model, 2)
    x = np.random.default_rng(0).normal(size=(12, 6))
    model.train_on_batch(x, Y)
    loss.phase = later
    model.make_train_function(force=True)
    with pytest.raises(InputError, match="cannot be computed in slices"):
        model.train_on_batch(x, Y)


def test_what_counts_at_every_step_is_let_be_and_nothing_else_is() -> None:
    held = {"flag": False, "count": 0}
    state = PythonState(lambda: {(0, key): (held, key) for key in held})
    seen = [state.now()]
    for _ in range(8):
        held["count"] += 1
        seen.append(state.now())
    assert len(set(seen)) == COUNTED + 1
    held["flag"] = True
    assert state.now() is not seen[-1]


@pytest.mark.parametrize("graph", [False, True])
def test_a_step_of_ones_own_that_is_switched_over_is_found_out_anew(graph: bool) -> None:
    import tensorflow as tf

    bench, switch = Bench(), {"hard": False}

    def loss(y: Any, p: Any) -> Any:
        each = tf.reduce_mean((p - y) ** 2, 1)
        return tf.reduce_mean(each) + tf.math.reduce_std(each) if switch["hard"] else tf.reduce_mean(each)

    own = bench.step(loss)
    step = in_slices(tf.function(own, reduce_retracing=False) if graph else own)
    step(*arrays())
    switch["hard"] = True
    if graph:
        with pytest.raises(InputError, match="cannot be run in slices"):
            in_slices(tf.function(own))(*arrays())
        return
    with pytest.raises(InputError, match="cannot be run in slices"):
        step(*arrays())
