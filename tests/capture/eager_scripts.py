"""Scripts with eager training loops, put together from pieces, and what is done with them once they are stopped."""

import sys
import textwrap

import numpy as np

from legroom.capture.batch import iter_specs, map_specs

SETUP = """
import numpy as np, tensorflow as tf, keras
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, name="first")])
optimizer = keras.optimizers.SGD(0.1)
X, Y = np.ones((32, 6), "float32"), np.ones((32, 3), "float32")
dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
"""
TRAIN = """
with tf.GradientTape() as tape:
    loss = tf.reduce_mean((model(x) - y) ** 2)
gradients = tape.gradient(loss, model.trainable_variables)
optimizer.apply_gradients(zip(gradients, model.trainable_variables))
"""


class Run:
    """A script that was stopped at its first step, and which of two runs of that step have changed its weights."""

    def __init__(self, path):
        self.path, self.step, self.error, self.changes = path, None, None, []

    def specs(self):
        return [spec.shape for spec in iter_specs((self.step.args, self.step.kwargs))]

    def train(self):
        """Run the step twice on real arrays, from within the script's stop as an engine does."""
        for _ in range(2):
            before = [weight.numpy().copy() for weight in self.weights()]
            args, kwargs = map_specs(array, (self.step.args, self.step.kwargs))
            self.step.function(*args, **kwargs)
            changes = [not np.array_equal(old, new) for old, new in zip(before, self.weights(), strict=True)]
            self.changes.append(any(changes))

    def weights(self):
        frame = sys._getframe()
        while frame.f_code.co_filename != str(self.path) or frame.f_code.co_name != "<module>":
            frame = frame.f_back
        return [
            weight
            for name in ("model", "generator")
            for weight in getattr(frame.f_globals.get(name), "trainable_variables", [])
        ]


def array(spec):
    return np.full(spec.shape, 1, spec.dtype)


def indent(text, levels=1):
    return textwrap.indent(text, "    " * levels)


def line_of(run, text):
    return 1 + [line.strip() for line in run.path.read_text().splitlines()].index(text)
