"""`legroom.fit` on JAX, in a process of its own."""

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.jax, pytest.mark.oracle]

SCRIPT = """
import keras, numpy as np, legroom
from keras import layers as L
def make():
    keras.utils.set_random_seed(0)
    wide = [L.Dense(64, activation="gelu") for _ in range(4)]
    model = keras.Sequential([keras.Input((2048, 3)), *wide, L.GlobalAveragePooling1D(), L.Dense(1)])
    model.compile("sgd", "mse")
    return model
plain, planned = make(), make()
data = np.random.default_rng(0).random((48, 2048, 3), "float32")
given = {"x": data, "y": data[:, 0, :1], "batch_size": 16, "shuffle": False, "verbose": 0}
plain.fit(**given)
history = legroom.fit(planned, **given, budget="100MiB")
assert history.legroom_plan.actions
for one, other in zip(plain.get_weights(), planned.get_weights()):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
try:
    legroom.fit(make(), **given, budget="100KiB")
except legroom.LegroomError as error:
    assert "if the input were 1536 long instead of 2048 long: up to" in str(error), str(error)
    print("refused")
"""


def test_it_learns_what_fit_learns(tmp_path):
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "LEGROOM_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "refused" in done.stdout
