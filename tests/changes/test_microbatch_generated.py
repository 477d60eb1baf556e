"""Gradients of split steps on models that nobody chose."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_microbatch import Case, errors, float64  # noqa: F401 - a fixture

pytestmark = pytest.mark.tensorflow

LOSSES = ("MeanSquaredError", "MeanAbsoluteError", "Huber", "LogCosh", "CosineSimilarity")
REDUCTIONS = ("sum_over_batch_size", "sum", "mean", "mean_with_sample_weight")
LAYERS = ("dense", "dense", "norm", "conv", "gru", "skip")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Case, int]:
    """A net over masked sequences, its loss, and a batch; and the number of slices."""
    kinds = draw(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=4))
    masked, per_step = draw(st.booleans()), draw(st.booleans())
    regulariser = draw(st.sampled_from([None, "l2"]))
    loss, reduction = draw(st.sampled_from(LOSSES)), draw(st.sampled_from(REDUCTIONS))
    weighted, batch = draw(st.booleans()), draw(st.integers(1, 9))

    def model() -> Any:
        import keras
        from keras import layers

        inputs = keras.Input((4,), dtype="int32")
        x = layers.Embedding(7, 5, mask_zero=masked)(inputs)
        for kind in kinds:
            if kind == "norm":
                x = layers.LayerNormalization()(x)
            elif kind == "conv":
                x = layers.Conv1D(5, 2, padding="same", activation="tanh")(x)
            elif kind == "gru":
                x = layers.GRU(5, return_sequences=True, use_cudnn=False)(x)
            elif kind == "skip":
                x = layers.add([x, layers.Dense(5, "tanh", activity_regularizer=regulariser)(x)])
            else:
                x = layers.Dense(5, "tanh", kernel_regularizer=regulariser)(x)
        x = x if per_step else layers.GlobalAveragePooling1D()(x)
        return keras.Model(inputs, layers.Dense(3)(x))

    def data() -> tuple[Any, ...]:
        random = np.random.default_rng(batch)
        ids = random.integers(0, 7, (batch, 4))
        ids[:, 0] += ids[:, 0] == 0  # an average over nothing is not a number
        y = random.normal(size=(batch, 4, 3) if per_step else (batch, 3))
        return (ids, y, random.uniform(0.1, 2.0, y.shape[:-1])) if weighted else (ids, y)

    def compiled() -> dict[str, Any]:
        import keras

        return {"loss": getattr(keras.losses, loss)(reduction=reduction), "metrics": ["mae"]}

    return Case(model, data, compiled), draw(st.integers(1, 6))


@pytest.mark.usefixtures("float64")
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(cases())
def test_a_generated_step_in_eager_mode(drawn: tuple[Case, int]) -> None:
    gradients, logs = errors(drawn[0], "eager", drawn[1])
    assert gradients <= 1e-11
    assert logs <= 1e-6


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_a_generated_step_in_graphs(mode: str) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(cases())
    def check(drawn: tuple[Case, int]) -> None:
        gradients, logs = errors(drawn[0], mode, drawn[1])
        assert gradients <= 1e-11
        assert logs <= 1e-6

    check()
