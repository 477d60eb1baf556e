"""Training steps that users write into their models, in slices: weights and logs are the whole batch's, whatever the step does."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from legroom.changes.microbatch import split
from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow
X, Y = np.random.default_rng(0).normal(size=(2, 8, 6)).astype("float32")
Y = Y[:, :3]


class Base(keras.Model):  # type: ignore[misc]
    def gradients(self, data: Any) -> tuple[Any, Any]:
        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = self.loss_of(y, self(x, training=True))
        return loss, tape.gradient(loss, self.trainable_variables)

    def loss_of(self, y: Any, predicted: Any) -> Any:
        return ops.mean(ops.square(y - predicted))

    def train_step(self, data: Any) -> Any:
        loss, gradients = self.gradients(data)
        self.optimizer.apply(self.changed(gradients), self.trainable_variables)
        return {"my_loss": loss}

    def changed(self, gradients: Any) -> Any:
        return gradients


class AsInTheGuide(keras.Model):  # type: ignore[misc]
    def train_step(self, data: Any) -> Any:
        x, y = data[:2]
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


class WithTracker(Base):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.tracker = keras.metrics.Mean(name="loss")

    metrics = property(lambda self: [self.tracker])

    def train_step(self, data: Any) -> Any:
        self.tracker.update_state(super().train_step(data)["my_loss"])
        return {"loss": self.tracker.result()}


class WithSecondOptimizer(Base):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.optimizers = {"scale": keras.optimizers.SGD(0.1)}
        self.factor = tf.Variable(1.0)

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self.factor * data[1] - 1.0))
        self.optimizers["scale"].apply(tape.gradient(loss, [self.factor]), [self.factor])
        return logs | {"factor_loss": loss}


class Clipping(Base):
    def changed(self, gradients: Any) -> Any:
        return tf.clip_by_global_norm(gradients, 0.3)[0]


class UpdatingTwice(Base):
    def train_step(self, data: Any) -> Any:
        loss, gradients = self.gradients(data)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"my_loss": loss}


def marked(mark: float) -> type[Base]:
    class Marked(Base):
        def loss_of(self, y: Any, predicted: Any) -> Any:
            kept = ops.cast(~ops.isnan(y) if np.isnan(mark) else y != mark, predicted.dtype)
            errors = ops.square(ops.where(kept > 0, y, 0.0) - predicted)
            return ops.sum(errors * kept) / ops.sum(kept)

    return Marked


def made(kind: Callable[..., Any], **settings: Any) -> Any:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6,))
    model = kind(inputs, layers.Dense(3)(layers.Dense(5, "tanh")(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"] if kind is AsInTheGuide else None, **settings)
    return model


@pytest.mark.parametrize(
    "kind",
    [Base, AsInTheGuide, WithTracker, WithSecondOptimizer, Clipping, UpdatingTwice],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.parametrize("mode", ["graph", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("eager", "xla"))])
def test_weights_and_logs_are_the_whole_batches(kind: Any, mode: str) -> None:
    plain, sliced = (made(kind, run_eagerly=mode == "eager", jit_compile=mode == "xla") for _ in range(2))
    split(sliced, 3)  # 3, 3 and 2 samples
    logs = [model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history for model in (plain, sliced)]
    assert int(sliced.optimizer.iterations.numpy()) == int(plain.optimizer.iterations.numpy())
    for one, other in zip(plain.variables, sliced.variables, strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-5, atol=1e-6)
    assert logs[1].keys() == logs[0].keys()
    for name in logs[0]:
        np.testing.assert_allclose(logs[1][name], logs[0][name], rtol=1e-5)
    if kind is WithSecondOptimizer:
        np.testing.assert_allclose(sliced.factor.numpy(), plain.factor.numpy(), rtol=1e-6)


@pytest.mark.parametrize("mark", [-1.0, -999.0, float("nan")])
def test_a_mean_over_what_a_mark_leaves_is_refused(mark: float) -> None:
    model = made(marked(mark))
    split(model, 2)
    with pytest.raises(InputError, match="cannot be run in slices"):
        model.train_on_batch(X, Y)


@pytest.fixture
def doubles() -> Iterator[None]:
    for name in ("float64", "float32"):
        keras.config.set_floatx(name)
        keras.config.set_dtype_policy(name)
        if name == "float64":
            yield


class Counting(keras.Model):  # type: ignore[misc]
    """A model on Keras' own train_step, with a metric of its own."""

    def __init__(self, metric: Any = None) -> None:
        super().__init__()
        self.first, self.last = layers.Dense(5, "tanh"), layers.Dense(3)
        self.own = metric or keras.metrics.Mean(name="own")

    def call(self, x: Any) -> Any:
        return self.last(self.first(x))


class InCall(Counting):
    def call(self, x: Any) -> Any:
        hidden = self.first(x)
        self.own.update_state(ops.mean(ops.square(hidden)))
        return self.last(hidden)


class Counted(layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.metrics.Mean(name="inner")

    def call(self, x: Any) -> Any:
        self.inner.update_state(ops.max(ops.mean(x, axis=0) * 0 + ops.mean(x)))
        return x


class InALayer(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.counted = Counted()

    def call(self, x: Any) -> Any:
        return self.last(self.counted(self.first(x)))


class InComputeLoss(Counting):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:  # type: ignore[no-untyped-def]
        loss = ops.mean(ops.square(y - y_pred))
        self.own.update_state(loss)
        return loss


class InComputeMetrics(Counting):
    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        self.own.update_state(ops.mean(y_pred))
        return super().compute_metrics(x, y, y_pred, sample_weight)


def histories(make: Callable[[], Any], x: Any, y: Any, sample_weight: Any = None, **settings: Any) -> list[Any]:
    """Of the plain model and of the one in slices, whose weights agree."""
    settings = {"optimizer": keras.optimizers.SGD(0.1, clipnorm=0.5), "loss": "mse", "jit_compile": False} | settings
    models, found = [], []
    for slices in (1, 3):
        keras.utils.set_random_seed(1)
        model = make()
        model(x[:2])
        model.compile(**settings | {"optimizer": settings["optimizer"].from_config(settings["optimizer"].get_config())})
        if slices > 1:
            split(model, slices)
        fitted = model.fit(x, y, sample_weight=sample_weight, batch_size=8, epochs=2, shuffle=False, verbose=0)
        models.append(model)
        found.append(fitted.history)
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-12)
    return found


def assert_alike(found: list[Any]) -> None:
    assert found[1].keys() == found[0].keys()
    for name in found[0]:
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=1e-10)


def doubled(rows: int = 17) -> tuple[Any, Any]:
    """Batches of 8, 8 and 1 samples, the later ones larger."""
    random = np.random.default_rng(0)
    return random.normal(size=(rows, 6)) * np.linspace(0.1, 4, rows)[:, None], random.normal(size=(rows, 3))


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize(
    "kind", [InCall, InALayer, InComputeLoss, InComputeMetrics], ids=lambda kind: str(kind.__name__)
)
def test_metrics_that_the_model_updates_itself_are_the_whole_batches(kind: Any) -> None:
    assert_alike(histories(kind, *doubled()))


@pytest.mark.usefixtures("doubles")
def test_losses_that_are_summed_are_logged_as_of_the_whole_batch_beside_a_metric_of_the_models() -> None:
    x, y = doubled()
    weights = np.linspace(0.0, 2.0, len(x))
    assert_alike(histories(InCall, x, y, weights, loss=keras.losses.MeanSquaredError(reduction="sum")))


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("settings", [{"run_eagerly": True}, {"steps_per_execution": 2}], ids=str)
def test_metrics_that_the_model_updates_itself_in_other_modes(settings: Any) -> None:
    assert_alike(histories(InCall, *doubled(16), **settings))


class Masking(Counting):
    def call(self, x: Any) -> Any:
        return self.last(self.first(layers.Masking()(x)))


class MaskingWithSamples(Masking):
    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        self.own.update_state(ops.mean(ops.abs(y_pred), axis=-1))
        return super().compute_metrics(x, y, y_pred, sample_weight)


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("kind", [Masking, MaskingWithSamples], ids=lambda kind: str(kind.__name__))
def test_a_metric_that_gets_no_number_for_a_batch_leaves_masks_as_exact_as_they_were(kind: Any) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(17, 4, 6)), random.normal(size=(17, 4, 3))
    x[3:12, 1:] = 0
    assert_alike(histories(kind, x, y))


@pytest.mark.usefixtures("doubles")
def test_a_compute_loss_that_is_put_on_the_model_itself_is_used() -> None:
    def with_own_loss() -> Any:
        model = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
        model.compute_loss = lambda x=None, y=None, y_pred=None, *_, **__: 5.0 * ops.mean(ops.abs(y - y_pred))
        return model

    assert_alike(histories(with_own_loss, *doubled()))


def test_a_train_step_that_is_put_on_the_model_itself_is_used() -> None:
    found = []
    for slices in (1, 3):
        model = made(keras.Model)
        model.train_step = MethodType(Base.train_step, model)
        for name in ("gradients", "changed", "loss_of"):
            setattr(model, name, MethodType(getattr(Clipping, name), model))
        if slices > 1:
            split(model, slices)
        model.train_on_batch(X, Y)
        found.append(model.get_weights())
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


class LastNumber(keras.metrics.Metric):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="last")
        self.held = self.add_variable((), "zeros", name="held")

    def update_state(self, value: Any) -> None:
        self.held.assign(value)

    def result(self) -> Any:
        return self.held


def test_a_metric_of_the_users_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(InputError, match="does not add up over the slices"):
        histories(lambda: InCall(LastNumber()), X, Y)


ON_JAX = """
import sys
sys.path.insert(0, sys.argv[1])
import test_microbatch_own_steps as steps
try:
    steps.histories(steps.InComputeLoss, steps.X, steps.Y)
except steps.InputError as error:
    print("REFUSED", error)


class OwnUpdates(steps.Counting):
    def compute_loss_and_updates(self, *arguments, **settings):
        return super().compute_loss_and_updates(*arguments, **settings)


try:
    steps.histories(OwnUpdates, steps.X, steps.Y)
except steps.InputError as error:
    print("REFUSED", error)
"""


def test_what_cannot_be_told_in_slices_is_refused_on_jax() -> None:
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    here = os.path.dirname(__file__)
    done = subprocess.run([sys.executable, "-c", ON_JAX, here], capture_output=True, text=True, env=env, check=False)
    assert "REFUSED InComputeLoss updates its metric 'own' by itself" in done.stdout, done.stderr[-2000:]
    assert "REFUSED OwnUpdates has a compute_loss_and_updates of its own" in done.stdout, done.stderr[-2000:]
