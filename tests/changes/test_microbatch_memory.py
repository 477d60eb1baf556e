"""What splitting saves, counted by TensorFlow's own allocator in processes that have one.

Pointwise convolutions: the others' workspaces on a CPU do not depend on the batch and would hide what is to be seen.
One thread between operations: with two, a slice is now and then run in another order, and the peak is the machine's.
"""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tensorflow

CODE = """
import sys
import keras, numpy as np, tensorflow as tf
from legroom.changes.microbatch import split

layers = keras.layers
model = keras.Sequential([keras.Input((64, 64, 3))])
for _ in range(8):
    model.add(layers.Conv2D(16, 1, activation="relu"))
model.add(layers.GlobalAveragePooling2D())
model.add(layers.Dense(10))
model.compile("sgd", "mse", jit_compile=False, run_eagerly=sys.argv[2] == "eager")
count, batch = int(sys.argv[1]), int(sys.argv[3])
if count:
    split(model, count)
x, y = tf.random.normal((batch, 64, 64, 3)), tf.random.normal((batch, 10))
model.train_on_batch(x, y)
tf.config.experimental.reset_memory_stats("CPU:0")
before = tf.config.experimental.get_memory_info("CPU:0")["current"]
model.train_on_batch(x, y)
print("FOUND", tf.config.experimental.get_memory_info("CPU:0")["peak"] - before)
"""


def peak_bytes(count: int, mode: str, batch: int = 64) -> int:
    """The most that a step holds beyond weights and batch."""
    env = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPU_ALLOCATOR_USE_BFC": "1"}
    env |= {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "4000", "TF_NUM_INTEROP_THREADS": "1", "KERAS_BACKEND": "tensorflow"}
    command = [sys.executable, "-c", CODE, str(count), mode, str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    return int(lines[0].split()[1])


@pytest.mark.parametrize("mode", ["graph", pytest.param("eager", marks=pytest.mark.slow)])
def test_four_slices_hold_less_than_half_of_the_activations(mode: str) -> None:
    whole, split = peak_bytes(0, mode), peak_bytes(4, mode)
    activations = 8 * 64 * 64 * 64 * 16 * 4
    assert whole >= activations
    assert split <= 0.4 * whole


@pytest.mark.slow
def test_a_rest_is_not_held_beside_the_other_slices() -> None:
    """Held beside, a rest would make 93 MiB of 52."""
    even, uneven = (peak_bytes(4, "graph", batch=batch) for batch in (64, 61))
    assert uneven <= 1.1 * even


def test_no_constant_of_a_weights_size_stays() -> None:
    """Sums that start as a constant would keep it in the device's memory for good, as much as all weights."""
    import keras
    import tensorflow as tf

    from legroom.changes.microbatch import split
    from legroom.engines.op.grappler import Device, optimise

    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(256), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    split(model, 4)
    step = tf.function(model.train_step, autograph=False)
    batch = (tf.TensorSpec((8, 256)), tf.TensorSpec((8, 1)))
    graph = optimise(step.get_concrete_function(batch), Device(cores=2))
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    constants = [node.attr["value"].tensor for body in bodies for node in body if node.op == "Const"]
    assert constants
    assert max(tf.TensorShape(one.tensor_shape).num_elements() for one in constants) < 256 * 256
