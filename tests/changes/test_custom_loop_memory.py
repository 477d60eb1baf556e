"""What slices of a user's own step save, counted by TensorFlow's own allocator in processes that have one."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tensorflow

CODE = """
import sys
import keras, tensorflow as tf
import legroom

layers = keras.layers
model = keras.Sequential([keras.Input((64, 64, 3))])
for _ in range(8):
    model.add(layers.Conv2D(16, 1, activation="relu"))  # pointwise: no workspace that would hide what is to be seen
model.add(layers.GlobalAveragePooling2D())
model.add(layers.Dense(10))
optimizer = keras.optimizers.SGD()
mode, batch = sys.argv[1], int(sys.argv[2])

def make(count):
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 1.0)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss
    step = tf.function(step) if mode == "graph" else step
    return legroom.train_step(micro_batches=count)(step) if count else step

for count in (0, 4):
    step, x, y = make(count), tf.random.normal((batch, 64, 64, 3)), tf.random.normal((batch, 10))
    step(x, y)
    tf.config.experimental.reset_memory_stats("CPU:0")
    before = tf.config.experimental.get_memory_info("CPU:0")["current"]
    step(x, y)
    print("FOUND", tf.config.experimental.get_memory_info("CPU:0")["peak"] - before)
"""


@pytest.mark.parametrize(
    ("mode", "batch"), [("graph", 64), ("graph", 61), pytest.param("eager", 64, marks=pytest.mark.slow)]
)
def test_four_slices_hold_less_than_half_of_the_activations(mode: str, batch: int) -> None:
    env = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPU_ALLOCATOR_USE_BFC": "1"}
    env |= {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "4000", "KERAS_BACKEND": "tensorflow"}
    env |= {"TF_NUM_INTEROP_THREADS": "1"}  # one order of operations, so that the peak is not the machine's
    done = subprocess.run(
        [sys.executable, "-c", CODE, mode, str(batch)], capture_output=True, text=True, env=env, check=False
    )
    found = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert len(found) == 2, done.stderr[-3000:]
    whole, sliced = found
    assert whole >= 8 * batch * 64 * 64 * 16 * 4
    assert sliced <= 0.4 * whole
