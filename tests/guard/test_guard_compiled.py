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
