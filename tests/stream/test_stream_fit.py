"""`model.fit` on a stream: every sample of an epoch once, its position found by a callback, resumed in the middle of an epoch."""

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.jax]

HEAD = """
import keras, numpy as np, legroom
from legroom.data.keras_stream import stream_of_fit
COUNT = 203
x = np.arange(COUNT, dtype="float32")[:, None]

class Sum(keras.layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(shape=(COUNT,), initializer="zeros", trainable=False)
        self.w = self.add_weight(shape=(1,), initializer="ones")
    def call(self, inputs, training=False):
        hot = keras.ops.one_hot(keras.ops.cast(inputs[:, 0], "int32"), COUNT)
        self.seen.assign(self.seen + keras.ops.sum(hot, axis=0))
        return inputs * self.w

def make():
    model = keras.Sequential([keras.Input((1,)), Sum()])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model

class Stop(keras.callbacks.Callback):
    def __init__(self, at): super().__init__(); self.at, self.state, self.done = at, None, 0
    def on_train_batch_end(self, batch, logs=None):
        self.done += 1
        self.state = stream_of_fit().state(batch + 1)
        if self.done == self.at: self.model.stop_training = True
"""

SCRIPTS = {
    "counts": """
model = make()
stream = legroom.stream((x, x), batch_size=16, ram="1MiB", verbose=False)
history = model.fit(stream, epochs=3, verbose=0)
assert (np.asarray(model.layers[0].seen) == 3).all(), np.asarray(model.layers[0].seen)
assert stream.state()["epoch"] == 3 and len(history.history["loss"]) == 3
assert model.evaluate(stream, verbose=0) < 1e-9
assert model.predict(legroom.stream(x, batch_size=16, shuffle=False, verbose=False), verbose=0)[:, 0].tolist() == x[:, 0].tolist()
""",
    "resumed": """
for at in (1, 5, 12, 13, 14, 20):
    model = make()
    stream, stop = legroom.stream((x, x), batch_size=16, ram="1MiB", verbose=False), Stop(at)
    model.fit(stream, epochs=2, callbacks=[stop], verbose=0)
    seen = np.array(model.layers[0].seen)
    assert stop.state == stream.after({**stream.state(0), "epoch": 0, "samples": 0}, at), (at, stop.state)
    other = legroom.stream((x, x), batch_size=16, ram="1MiB", verbose=False)
    other.restore(stop.state)
    again = make()
    again.fit(other, initial_epoch=stop.state["epoch"], epochs=2, verbose=0)
    assert (seen + np.array(again.layers[0].seen) == 2).all(), (at, seen + np.array(again.layers[0].seen))
""",
    "steps": """
model = make()
stream = legroom.stream((x, x), batch_size=16, ram="1MiB", verbose=False)
model.fit(stream, epochs=4, steps_per_epoch=5, verbose=0)
assert np.asarray(model.layers[0].seen).sum() == 203 + 5 * 16  # Keras ends the third epoch with the data, and says so
model.fit(legroom.stream((x, x), batch_size=16, drop_last=True, verbose=False), epochs=2, verbose=0)
""",
    "generator": """
model = make()
stream = legroom.stream(lambda: ((row, row) for row in x), batch_size=16, ram="1MiB", verbose=False)
model.fit(stream, epochs=2, verbose=0)
assert (np.asarray(model.layers[0].seen) == 2).all()
model.fit(legroom.stream(({"a": x}["a"], x), batch_size=16, verbose=False), epochs=1, verbose=0, validation_data=stream)
""",
    "loop": """
stream = legroom.stream((x, x), batch_size=16, ram="1MiB", verbose=False)
first = next(iter(stream))[0].copy()
assert stream.state()["samples"] == 16
seen = []
for number, (batch, _) in enumerate(stream):
    seen += batch[:, 0].tolist()
    if number == 4: break
assert seen[:16] == first[:, 0].tolist()
state = stream.state()
assert (state["epoch"], state["samples"]) == (0, 80)
other = legroom.stream((x, x), batch_size=7, ram="1MiB", verbose=False)
other.restore(state)
for batch, _ in other: seen += batch[:, 0].tolist()
assert sorted(seen) == list(range(COUNT))
assert other.state()["epoch"] == 1 and other.state()["samples"] == 0
""",
}


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_scripts(backend):
    """One process for all of them: most of the time goes into the imports."""
    env = os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    code = HEAD + "".join(f"\nprint({name!r})\n{script}" for name, script in SCRIPTS.items())
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr[-3000:])


def test_labels_and_weights_beside_a_stream_are_refused():
    import keras
    import numpy as np

    import legroom
    from legroom.errors import InputError

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    stream = legroom.stream((np.zeros((8, 2)), np.zeros(8)), batch_size=4, verbose=False)
    with pytest.raises(InputError, match="class_weight"):
        model.fit(stream, class_weight={0: 1.0}, verbose=0)
    model.fit(stream, verbose=0)


def test_an_error_in_the_middle_leaves_the_weights_of_whole_steps():
    """On TensorFlow the stream's own error comes out of `legroom.fit`, and the optimizer has seen whole batches only."""
    import keras
    import numpy as np

    import legroom
    from legroom.errors import InputError

    class Bad:
        def __len__(self):
            return 64

        def __getitem__(self, index):
            if index == 43:
                raise OSError("the disk is gone")
            return np.zeros(2, np.float32), np.float32(0)

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    stream = legroom.stream(Bad(), batch_size=8, shuffle=False, ram="4KiB", verbose=False)
    with pytest.raises(InputError, match="Sample 43 of the Bad could not be read: OSError: the disk is gone"):
        legroom.fit(model, stream, ram="1GiB", verbose=0)
    assert int(model.optimizer.iterations) == 5
