"""`legroom.fit`: planned, trained, put back; the same weights as `model.fit` makes."""

import os
import subprocess
import sys

import pytest

import legroom
from legroom.errors import DoesNotFit, InputError

pytestmark = pytest.mark.tensorflow


def make():
    import keras
    from keras import layers as L

    keras.utils.set_random_seed(0)
    wide = [L.Dense(64, activation="gelu") for _ in range(4)]
    model = keras.Sequential([keras.Input((2048, 3)), *wide, L.GlobalAveragePooling1D(), L.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    return model


def arrays(count=48):
    import numpy as np

    generator = np.random.default_rng(0)
    return generator.random((count, 2048, 3), "float32"), generator.random((count, 1), "float32")


@pytest.fixture(scope="module")
def tight():
    """A budget that batch 16 does not fit into as it is."""
    x, y = arrays(16)
    return int(legroom.estimate(make(), (x, y), engine="op", jit_compile=False).high_bytes * 0.75)


def as_arrays():
    x, y = arrays()
    return {"x": x, "y": y, "batch_size": 16, "shuffle": False}


def as_dataset():
    import tensorflow as tf

    return {"x": tf.data.Dataset.from_tensor_slices(arrays()).shuffle(48, seed=1).batch(16)}


def as_generator():
    def batches():
        x, y = arrays()
        for start in (0, 16, 32):
            yield x[start : start + 16], y[start : start + 16]

    return {"x": batches(), "steps_per_epoch": 3}


def as_pydataset():
    import keras

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, place):
            x, y = arrays()
            return x[place * 16 : place * 16 + 16], y[place * 16 : place * 16 + 16]

    return {"x": Batches(), "shuffle": False}


@pytest.mark.parametrize("given", [as_arrays, as_dataset, as_generator, as_pydataset])
def test_it_learns_what_fit_learns_and_puts_the_model_back(given, tight, capsys):
    import numpy as np

    plain, planned = make(), make()
    plain.fit(**given(), verbose=0)
    history = legroom.fit(planned, **given(), budget=tight, verbose=2)
    assert history.legroom_plan.actions
    assert history.legroom_plan.high_bytes <= tight
    assert "loss" in history.history
    assert "train_step" not in vars(planned)
    assert not any("call" in vars(layer) for layer in planned._flatten_layers())
    for one, other in zip(plain.get_weights(), planned.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    said = capsys.readouterr().err
    assert said.startswith("legroom: training with ")
    assert "batch 16 needs up to" in said
    assert said.count("\n") == 1


def test_what_fits_is_left_as_it_is(capsys):
    model = make()
    history = legroom.fit(model, **as_arrays(), budget="8GiB", verbose=2)
    assert history.legroom_plan.actions == ()
    assert "it fits as it is" in capsys.readouterr().err


def test_verbose_0_says_nothing_and_a_plan_is_taken_as_it_is(tight, capsys, tmp_path):
    x, y = arrays(16)
    model = make()
    planning = legroom.plan(model, (x, y), budget=tight, jit_compile=False)
    legroom.save_plan(planning, tmp_path / "plan.json")
    history = legroom.fit(model, **as_arrays(), plan=planning, verbose=0)
    assert history.legroom_plan == planning.best
    assert capsys.readouterr().err == ""
    legroom.fit(make(), x, y, batch_size=16, plan=tmp_path / "plan.json")
    assert "as planned: up to" in capsys.readouterr().err
    legroom.fit(make(), *arrays(), batch_size=24, plan=planning)
    assert "made for batch 16; what batch 24 takes was not estimated" in capsys.readouterr().err


def test_an_error_in_training_puts_the_model_back(tight):
    import keras

    class Breaks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("broken")

    model = make()
    with pytest.raises(RuntimeError, match="broken"):
        legroom.fit(model, **as_arrays(), budget=tight, verbose=0, callbacks=[Breaks()])
    assert "train_step" not in vars(model)
    model.fit(**as_arrays(), verbose=0)


def test_where_nothing_fits_the_smallest_is_named():
    with pytest.raises(DoesNotFit, match="the smallest it found needs") as raised:
        legroom.fit(make(), **as_arrays(), budget="10KiB", verbose=0)
    assert isinstance(raised.value, InputError)
    assert raised.value.exit_code == 1


def test_mistakes(monkeypatch, tight):
    monkeypatch.setattr("legroom.front.target.gpu_of_this_machine", lambda: None)
    with pytest.raises(InputError, match="no GPU here") as raised:
        legroom.fit(make(), **as_arrays())
    assert 'budget="8GiB"' in raised.value.hint
    with pytest.raises(InputError, match=r"Expected a keras.Model"):
        legroom.fit(3, *arrays(), budget="1GiB")
    with pytest.raises(InputError, match="without data"):
        legroom.fit(make(), budget="1GiB")
    with pytest.raises(InputError, match="nothing called 'all' to allow"):
        legroom.fit(make(), *arrays(), budget="1GiB", allow="all")
    with pytest.raises(InputError, match="is empty"):
        legroom.fit(make(), (batch for batch in ()), budget="1GiB")
    with pytest.raises(InputError, match="is not a plan"):
        legroom.fit(make(), *arrays(), plan="nosuch.json")


SCRIPT = """
import keras, numpy as np, legroom
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=False)
legroom.fit(model, np.ones((64, 64), "float32"), np.ones((64, 1), "float32"), batch_size=32)
"""


def test_a_script_that_calls_it_is_estimated_as_it_is(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "LEGROOM_CACHE": str(tmp_path), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "legroom", "estimate", str(tmp_path / "train.py"), "--budget", "1GiB"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Batch 32 needs" in done.stdout
