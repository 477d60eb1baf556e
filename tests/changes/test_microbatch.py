"""A split step against the whole one: the same gradients, logs and state, for every way a loss can be made."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

N = 10  # with 4 slices: 3, 3, 3 and 1
STEPS = 6  # of a sequence


@dataclass(frozen=True)
class Case:
    """A model to be made, what it is compiled with, and one batch."""

    model: Callable[[], Any]
    data: Callable[[], tuple[Any, ...]]
    compile: Callable[[], dict[str, Any]] = lambda: {"loss": "mse"}
    class_weight: dict[int, float] | None = None
    frameworks: tuple[str, ...] = ("tensorflow", "jax")


def random(*shape: int, seed: int = 0) -> Any:
    import keras

    return np.random.default_rng(seed).normal(size=shape).astype(keras.config.floatx())


def weights(*shape: int) -> Any:
    return np.abs(random(*shape, seed=9)) + 0.1


def classes(*shape: int) -> Any:
    return np.random.default_rng(1).integers(0, 3, shape)


def tokens(seed: int = 2) -> Any:
    """Sequences of different lengths: the slices' masks have different shares."""
    ids = np.random.default_rng(seed).integers(1, 20, (N, STEPS))
    for row in range(N):
        ids[row, 1 + (row * (seed + 1)) % STEPS :] = 0
    return ids


def xy(outputs: int = 3) -> Callable[[], tuple[Any, ...]]:
    return lambda: (random(N, 8), random(N, outputs, seed=1))


def labels(*more: Any) -> Callable[[], tuple[Any, ...]]:
    return lambda: (random(N, 8), classes(N), *[part() for part in more])


def sparse_ce(reduction: Any = "sum_over_batch_size") -> Callable[[], dict[str, Any]]:
    def made() -> dict[str, Any]:
        import keras

        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
        return {"loss": loss, "metrics": ["accuracy"]}

    return made


def dense(**arguments: Any) -> Callable[[], Any]:
    def build() -> Any:
        from keras import Input, Sequential, layers

        return Sequential([Input((8,)), layers.Dense(16, "tanh", **arguments), layers.Dense(3)])

    return build


def convolutions() -> Any:
    from keras import Input, Sequential, layers

    model = Sequential([Input((8, 8, 2)), layers.Conv2D(4, 3, activation="relu"), layers.GroupNormalization(2)])
    for layer in (layers.MaxPooling2D(), layers.Flatten(), layers.Dense(3)):
        model.add(layer)
    return model


def sequence(per_step: bool = True) -> Callable[[], Any]:
    """Its mask reaches the loss where there is an output for each step."""

    def build() -> Any:
        from keras import Input, Sequential, layers

        model = Sequential([Input((STEPS,), dtype="int32"), layers.Embedding(20, 5, mask_zero=True)])
        model.add(layers.Dense(6, "tanh") if per_step else layers.GRU(6, use_cudnn=False))
        model.add(layers.Dense(3))
        return model

    return build


def two_heads(masks: int = 1, regularised: bool = False) -> Callable[[], Any]:
    """Two inputs of tokens and two outputs; one or both have a mask."""

    def build() -> Any:
        import keras
        from keras import layers

        first = keras.Input((STEPS,), dtype="int32", name="first")
        second = keras.Input((STEPS,), dtype="int32", name="second")
        a = layers.Embedding(20, 5, mask_zero=True)(first)
        b = layers.Embedding(20, 5, mask_zero=masks > 1)(second)
        mixed = layers.Dense(5, "tanh", activity_regularizer="l2" if regularised else None)
        outputs = {"a": layers.Dense(3, name="a")(mixed(a)), "b": layers.Dense(2, name="b")(mixed(b))}
        return keras.Model({"first": first, "second": second}, outputs)

    return build


def two_batches(weighted: bool = False) -> Callable[[], tuple[Any, ...]]:
    def data() -> tuple[Any, ...]:
        x = {"first": tokens(2), "second": tokens(3)}
        y = {"a": random(N, STEPS, 3), "b": random(N, STEPS, 2, seed=4)}
        return (x, y, {"a": weights(N, STEPS), "b": weights(N, STEPS) * 2}) if weighted else (x, y)

    return data


def two_losses() -> dict[str, Any]:
    return {"loss": {"a": "mse", "b": "mae"}, "loss_weights": {"a": 0.3, "b": 2.0}, "metrics": {"a": ["mse"]}}


def adding(reduce: str) -> Callable[[], Any]:
    """A layer that adds a loss of its own, beside a regulariser."""

    def build() -> Any:
        import keras
        from keras import Input, Sequential, layers

        class Adds(layers.Layer):
            def call(self, x: Any) -> Any:
                self.add_loss(0.1 * getattr(keras.ops, reduce)(keras.ops.square(x)))
                return x

        model = Sequential([Input((8,)), layers.Dense(5, kernel_regularizer="l2"), Adds()])
        model.add(layers.Dense(3, bias_regularizer="l1", activity_regularizer="l1"))
        return model

    return build


def own(base: type, **methods: Any) -> Callable[[], Any]:
    def build() -> Any:
        import keras

        cls = type(base.__name__, (keras.Model,), methods)
        inputs = keras.Input((8,))
        hidden = keras.layers.Dense(6, "tanh", kernel_regularizer="l2")(inputs)
        return cls(inputs, keras.layers.Dense(3)(hidden))

    return build


class OwnLoss:
    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: Any = True
    ) -> Any:
        from keras import ops

        return ops.mean(ops.square(y - y_pred) * 3.0) + sum(self.losses)  # type: ignore[attr-defined]


class OwnStep:
    def train_step(self: Any, data: Any) -> Any:
        import tensorflow as tf

        x, y, _ = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = tf.reduce_mean(tf.square(y_pred - y)) + sum(self.losses)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        self.metrics[0].update_state(loss, sample_weight=tf.shape(y)[0])
        return {"loss": self.metrics[0].result()}


def subclassed() -> Any:
    """Nothing is built before the first batch, and one weight never gets a gradient."""
    import keras

    class Late(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = keras.layers.Dense(7, "tanh"), keras.layers.Dense(3)
            self.idle = keras.layers.Dense(2)

        def call(self, x: Any) -> Any:
            self.idle(x)
            return self.last(self.first(x))

    return Late()


def per_sample(y_true: Any, y_pred: Any) -> Any:
    from keras import ops

    return ops.max(ops.square(y_true - y_pred), axis=-1)


def scalar_mean(y_true: Any, y_pred: Any) -> Any:
    from keras import ops

    return ops.mean(ops.square(y_true - y_pred))


def scalar_sum(y_true: Any, y_pred: Any) -> Any:
    from keras import ops

    return ops.sum(ops.square(y_true - y_pred))


def huber() -> Any:
    import keras

    return keras.losses.Huber()


def losses(name: str, **arguments: Any) -> Callable[[], dict[str, Any]]:
    def made() -> dict[str, Any]:
        import keras

        return {"loss": getattr(keras.losses, name)(**arguments)}

    return made


def scaled() -> dict[str, Any]:
    import keras

    return {
        "loss": "mse",
        "optimizer": keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=64.0),
    }


def clipped() -> dict[str, Any]:
    import keras

    return {"loss": "mse", "optimizer": keras.optimizers.SGD(1.0, clipnorm=0.01)}


SEQUENCES = (lambda: (tokens(), random(N, STEPS, 3)), lambda: (tokens(), random(N, STEPS, 3), weights(N, STEPS)))

CASES = {
    "dense": Case(dense(), xy()),
    "convolutions": Case(convolutions, lambda: (random(N, 8, 8, 2), random(N, 3, seed=1))),
    "sample weights": Case(dense(), labels(lambda: weights(N)), sparse_ce()),
    "class weights": Case(dense(), labels(), sparse_ce(), class_weight={0: 0.2, 1: 3.0, 2: 1.0}),
    "summed": Case(dense(), labels(lambda: weights(N)), sparse_ce("sum")),
    "mean by weight": Case(dense(), labels(lambda: weights(N)), sparse_ce("mean_with_sample_weight")),
    "mean by no weight": Case(dense(), labels(), sparse_ce("mean_with_sample_weight")),
    "no reduction": Case(dense(), labels(), sparse_ce(None), frameworks=("tensorflow",)),
    "mask": Case(sequence(), SEQUENCES[0], lambda: {"loss": "mse", "metrics": ["mae"]}),
    "mask and weights": Case(sequence(), SEQUENCES[1], lambda: {"loss": "mae", "weighted_metrics": ["mse"]}),
    "mask, mean by weight": Case(
        sequence(), SEQUENCES[1], losses("MeanSquaredError", reduction="mean_with_sample_weight")
    ),
    "mask, mean by no weight": Case(
        sequence(), SEQUENCES[0], losses("MeanSquaredError", reduction="mean_with_sample_weight")
    ),
    "mask, summed": Case(sequence(), SEQUENCES[1], losses("MeanSquaredError", reduction="sum")),
    "mask within": Case(sequence(per_step=False), lambda: (tokens(), random(N, 3))),
    "mask and regularisers": Case(two_heads(2, True), two_batches(), two_losses),
    "one mask of two": Case(two_heads(1), two_batches(), two_losses),
    "two masks": Case(two_heads(2), two_batches(True), two_losses),
    "regularisers and add_loss": Case(adding("mean"), xy()),
    "summed add_loss": Case(adding("sum"), xy(), losses("Huber", reduction="sum")),
    "own values per sample": Case(dense(), lambda: (*xy()(), weights(N)), lambda: {"loss": per_sample}),
    "own mean": Case(dense(), xy(), lambda: {"loss": scalar_mean}),
    "own mean, weighted": Case(dense(), lambda: (*xy()(), weights(N)), lambda: {"loss": scalar_mean}),
    "own metric": Case(dense(), xy(), lambda: {"loss": "mse", "metrics": [scalar_mean, per_sample]}),
    "loss as metric": Case(dense(), xy(), lambda: {"loss": "mse", "metrics": [huber()]}),
    "own sum": Case(dense(), xy(), lambda: {"loss": scalar_sum}),
    "scaled loss": Case(dense(kernel_regularizer="l2"), xy(), scaled),
    "clipped": Case(sequence(per_step=False), lambda: (tokens(), random(N, 3)), clipped),
    "own compute_loss": Case(own(OwnLoss, compute_loss=OwnLoss.compute_loss), xy()),
    "own train_step": Case(own(OwnStep, train_step=OwnStep.train_step), xy(), frameworks=("tensorflow",)),
    "subclassed": Case(subclassed, xy()),
}


def trained(case: Case, mode: str, count: int | None) -> tuple[list[Any], dict[str, float]]:
    """How one step of SGD(1.0) changes the weights, which is the gradient, and what it logs."""
    import keras

    from legroom.changes.microbatch import split

    keras.utils.set_random_seed(3)
    model = case.model()
    settings = {"optimizer": keras.optimizers.SGD(1.0)} | case.compile()
    model.compile(**settings, run_eagerly=mode == "eager", jit_compile=mode in ("xla", "jax"))
    x, y, *weight = case.data()
    if not model.built:
        model(keras.ops.convert_to_tensor(x[:2]))
    before = [variable.numpy() for variable in model.trainable_variables]
    if count is not None:
        split(model, count)
    logs = model.train_on_batch(
        x, y, sample_weight=weight[0] if weight else None, class_weight=case.class_weight, return_dict=True
    )
    assert int(model.optimizer.iterations.numpy()) == 1
    after = [variable.numpy() for variable in model.trainable_variables]
    return [b - a for a, b in zip(before, after, strict=True)], logs


def errors(case: Case, mode: str, count: int) -> tuple[float, float]:
    """The worst relative difference between the whole step and the split one: of a gradient, and of a logged value."""
    whole, split = trained(case, mode, None), trained(case, mode, count)
    norms = [np.linalg.norm(a) for a in whole[0]]
    floor = 1e-6 * max(norms)  # a gradient of nothing but rounding has no relative error
    pairs = zip(norms, whole[0], split[0], strict=True)
    assert whole[1].keys() == split[1].keys()
    logs = [abs(whole[1][name] - split[1][name]) / max(abs(whole[1][name]), 1e-6) for name in whole[1]]
    return float(max(np.linalg.norm(a - b) / max(n, floor) for n, a, b in pairs)), float(max(logs))


@pytest.fixture
def float64() -> Iterator[None]:
    import keras

    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


GRAPHS = (
    *("dense", "convolutions", "sample weights", "summed", "mean by weight", "mask", "mask and regularisers"),
    *("two masks", "regularisers and add_loss", "own mean, weighted", "scaled loss", "own train_step", "subclassed"),
)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", CASES)
def test_in_eager_mode_gradients_and_logs_are_those_of_the_whole_batch(name: str) -> None:
    gradients, logs = errors(CASES[name], "eager", count=4)
    assert gradients <= 1e-11
    assert logs <= 1e-6


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [pytest.param(x, marks=[] if x in GRAPHS else [pytest.mark.slow]) for x in CASES])
def test_in_graphs_they_are_too(name: str) -> None:
    gradients, logs = errors(CASES[name], "graph", count=4)
    assert gradients <= 1e-11
    assert logs <= 1e-6


QUICK = ("sample weights", "two masks")


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(x, marks=pytest.mark.slow) for x in CASES if x not in QUICK)])
def test_compiled_by_xla_they_are_too(name: str) -> None:
    gradients, logs = errors(CASES[name], "xla", count=4)
    assert gradients <= 1e-11
    assert logs <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "eager", "xla"])
@pytest.mark.parametrize("name", CASES)
def test_in_single_precision_they_differ_by_rounding(name: str, mode: str) -> None:
    gradients, logs = errors(CASES[name], mode, count=4)
    assert gradients <= 1e-3
    assert logs <= 1e-4


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("count", [1, 9, 25])
@pytest.mark.parametrize("name", ["mask and weights", "regularisers and add_loss"])
def test_any_number_of_slices_will_do(name: str, count: int) -> None:
    gradients, logs = errors(CASES[name], "eager", count)
    assert gradients <= 1e-11
    assert logs <= 1e-6
