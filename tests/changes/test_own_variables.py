"""Variables that a model's own `compute_loss` and `compute_metrics` set: once a step, or refused."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops
from loop_bench import precision

from legroom.changes.microbatch import split
from legroom.errors import InputError

X = np.random.default_rng(0).normal(size=(24, 6))
Y = np.random.default_rng(1).normal(size=(24, 1))


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    precision("float64")
    yield
    precision("float32")


class Counting(keras.Model):  # type: ignore[misc]
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)


class Ramp(Counting):
    """The weight of a term grows with a counter."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        self.count.assign_add(1.0)
        return super().compute_loss(x, y, y_pred) + ops.minimum(1.0, self.count / 8.0) * ops.mean(ops.abs(y_pred))


class Average(Counting):
    """Keeps a moving average of its loss."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        loss = super().compute_loss(x, y, y_pred)
        self.count.assign(0.9 * self.count + 0.1 * ops.stop_gradient(loss))
        return loss


class Logging(Counting):
    """Counts its steps and logs a norm of its weights."""

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        self.count.assign_add(1.0)
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "norm": ops.sum(self.layers[-1].kernel ** 2)}


def built(kind: Any, eager: bool) -> Any:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6,))
    model = kind(inputs=inputs, outputs=layers.Dense(1)(layers.Dense(4, "tanh")(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=eager, jit_compile=False)
    return model


@pytest.mark.tensorflow
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("kind", [Ramp, Average])
def test_a_variable_that_compute_loss_sets_and_uses_is_refused(kind: Any, eager: bool) -> None:
    model = built(kind, eager)
    split(model, 2)
    with pytest.raises(InputError, match="assigns"):
        model.train_on_batch(X, Y)
    assert float(model.count) == 0


@pytest.mark.tensorflow
@pytest.mark.parametrize("eager", [False, True])
def test_what_compute_metrics_sets_and_logs_is_as_of_the_whole_batch(eager: bool) -> None:
    whole, parts = built(Logging, eager), built(Logging, eager)
    split(parts, 2)
    histories = [model.fit(X, Y, batch_size=12, epochs=2, shuffle=False, verbose=0).history for model in (whole, parts)]
    assert float(parts.count) == float(whole.count) == 4
    assert histories[1]["norm"] == pytest.approx(histories[0]["norm"], rel=1e-12)
    assert histories[1]["loss"] == pytest.approx(histories[0]["loss"], rel=1e-12)


ON_JAX = """
import sys
sys.path[:0] = [{folder!r}]
from test_own_variables import *
import jax
for kind in (Ramp, Average, Logging):
    model = built(kind, False)
    split(model, 2)
    try:
        model.train_on_batch(X, Y)
        print(kind.__name__, "trained")
    except InputError as error:
        print(kind.__name__, "sets the variable" in str(error))
"""


@pytest.mark.jax
def test_on_jax_they_are_refused() -> None:
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    program = ON_JAX.format(folder=os.path.dirname(__file__))
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["Ramp True", "Average True", "Logging True"], done.stderr[-2000:]
