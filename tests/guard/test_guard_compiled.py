"""Compiled steps that would not fit are not started, and the process lives on."""

import subprocess
import sys

import guard_worker
import pytest

CODE = """
import keras, numpy, legroom
keras.utils.set_random_seed(0)
layers = keras.layers
parts = [keras.Input((None, 8)), layers.Dense(32, activation="relu"), layers.GlobalAveragePooling1D(), layers.Dense(3)]
model = keras.Sequential(parts)
model.compile("adam", "mse", jit_compile=True)
random = numpy.random.default_rng(3)
def batches():
    for batch, length in ((8, 64), (256, 1024), (16, 64)):
        yield random.random((batch, length, 8), "float32"), random.random((batch, 3), "float32")
guard = legroom.Guard(budget="64MiB", verbose=False)
model.fit(batches(), verbose=0, callbacks=[guard])
finite = all(bool(numpy.isfinite(weight).all()) for weight in model.get_weights())
event = guard.run.of_kind("does_not_fit")[0]
print("FOUND", int(model.optimizer.iterations), event.step, event.asked_bytes > 0, guard.run.way.micro_batches > 1, finite)
"""


@pytest.mark.parametrize(
    "backend", [pytest.param("tensorflow", marks=pytest.mark.tensorflow), pytest.param("jax", marks=pytest.mark.jax)]
)
def test_a_compiled_step_that_does_not_fit_is_cut_before_it_starts(backend):
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        env=guard_worker.environment(40, backend),
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert found, done.stderr[-2000:]
    assert found[0] == "FOUND 3 2 True True True"


EVALUATED = """
import keras, numpy, legroom
keras.utils.set_random_seed(0)
layers = keras.layers
def make(**more):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((256, 8))
    hidden = layers.MultiHeadAttention(1, 8, kernel_regularizer="l2", **more)(inputs, inputs)
    outputs = layers.Dense(3)(layers.GlobalAveragePooling1D()(layers.BatchNormalization()(hidden)))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mae", metrics=["mse", keras.metrics.RootMeanSquaredError()], jit_compile=True)
    return model
random = numpy.random.default_rng(3)
x, y, w = random.random((150, 256, 8), "float32"), random.random((150, 3), "float32"), random.random(150, "float32")
model = make()
guard = lambda: legroom.Guard(budget="12MiB", verbose=False)
plain = model.evaluate(x, y, sample_weight=w, batch_size=64, verbose=0, return_dict=True)
tested = guard()
cut = model.evaluate(x, y, sample_weight=w, batch_size=64, verbose=0, return_dict=True, callbacks=[tested])
assert all(abs(cut[name] - plain[name]) <= 1e-5 * abs(plain[name]) for name in plain), (cut, plain)
whole = model.predict(x, batch_size=64, verbose=0)
predicted = guard()
numpy.testing.assert_allclose(model.predict(x, batch_size=64, verbose=0, callbacks=[predicted]), whole, rtol=1e-5, atol=1e-6)
for one in (tested, predicted):
    assert {event.kind for event in one.run.events} == {"does_not_fit"}, one.run.events
numpy.testing.assert_allclose(model.predict(x, batch_size=64, verbose=0), whole, rtol=1e-6)
try:
    make(activity_regularizer="l2").evaluate(x, y, batch_size=64, verbose=0, callbacks=[guard()])
except legroom.LegroomError as error:
    assert "add losses of their own" in error.hint, error.hint
    print("FOUND refused")
"""


@pytest.mark.jax
def test_evaluate_and_predict_on_jax_are_cut_before_they_start():
    done = subprocess.run(
        [sys.executable, "-c", EVALUATED],
        capture_output=True,
        text=True,
        env=guard_worker.environment(40, "jax"),
        check=False,
    )
    assert "FOUND refused" in done.stdout, done.stderr[-3000:]
