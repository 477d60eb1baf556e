"""Training steps that users write into their models, in slices: weights and logs are the whole batch's, whatever the step does."""

from collections.abc import Callable
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
