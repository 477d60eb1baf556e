"""The simulated allocator against TensorFlow's: every address, every count and every hole, in two real processes."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
import bfc_log

from legroom.engines.bfc import Bfc, OutOfMemory

pytestmark = pytest.mark.tensorflow
MIB = 2**20
LIMIT_MIB = 100

START = """
import json, sys
import tensorflow as tf

def report():
    counts = tf.config.experimental.get_memory_info("CPU:0")
    print("COUNTS", json.dumps(counts), file=sys.stderr, flush=True)
"""

# Threads, and tensors of a graph that die where they like: the profile has the lock's order all the same.
PROFILED = """
tf.profiler.experimental.start(sys.argv[1])
images = tf.random.stateless_normal([16, 32, 32, 3], [1, 2])
kernels = [tf.Variable(tf.random.stateless_normal(shape, [3, 4])) for shape in ([3, 3, 3, 16], [3, 3, 16, 32])]

def step():
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu(tf.nn.conv2d(images, kernels[0], 1, "SAME"))
        loss = tf.reduce_mean(tf.nn.conv2d(hidden, kernels[1], 2, "SAME") ** 2)
    for kernel, gradient in zip(kernels, tape.gradient(loss, kernels)):
        kernel.assign_sub(0.1 * gradient)

step()
graph = tf.function(step)
graph()
graph()
report()
tf.profiler.experimental.stop()
"""

# Ten MiB held in every other place, then twenty-five asked for: there are enough bytes, and no hole. TF waits ten seconds.
LOGGED = """
weights = tf.Variable(tf.ones([64, 32]))
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(tf.matmul(tf.ones([16, 64]), weights) ** 2)
weights.assign_sub(tape.gradient(loss, weights))
report()
size = tf.constant(10 * 2**18)
one = tf.constant(1.0)
held = [tf.fill([size], one) for _ in range(7)]
del held[1::2]
try:
    tf.fill([25 * 2**18], one)
except tf.errors.ResourceExhaustedError:
    pass
"""


def start(code, level, *arguments):
    settings = {
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_CPU_ALLOCATOR_USE_BFC": "1",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(LIMIT_MIB),
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": f"bfc_allocator={level}",
    }
    command = [sys.executable, "-c", START + code, *arguments]
    return subprocess.Popen(command, env=os.environ | settings, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The lines on stderr of a logged run, those of a profiled one, and the profile. Both run at once."""
    folder = tmp_path_factory.mktemp("profile")
    processes = [start(LOGGED, 4), start(PROFILED, 1, str(folder))]
    texts = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], texts
    logged, profiled = (text.splitlines() for text in texts)
    return logged, profiled, folder


def counts(lines):
    """Where the counts were reported, and what they were."""
    (found,) = [(i, line) for i, line in enumerate(lines) if line.startswith("COUNTS")]
    return found[0], json.loads(found[1].removeprefix("COUNTS"))


def follow(bfc, event):
    """Does what the real one did; the address must be the same."""
    if event.kind == "allocate":
        assert bfc.allocate(event.size_bytes) == event.address
    elif event.kind == "free":
        bfc.free(event.address)


def test_a_step_with_threads_lands_at_the_same_addresses_with_the_same_counts_after_every_event(real):
    _, lines, folder = real
    events = bfc_log.read_profile(folder)
    bfc = Bfc(LIMIT_MIB * MIB, memory=bfc_log.RecordedMemory(bfc_log.read_log(lines)))
    for event in events:
        follow(bfc, event)
        assert bfc.in_use_bytes == event.in_use_bytes
        assert event.kind == "free" or bfc.chunk_bytes(event.address) == event.chunk_bytes
    assert {"current": bfc.in_use_bytes, "peak": bfc.peak_in_use_bytes} == counts(lines)[1]
    assert len(events) > 200
    assert len(bfc.regions) > 2


def test_a_logged_step_gives_the_counts_that_tensorflow_reports(real):
    lines = real[0]
    at, reported = counts(lines)
    bfc = Bfc(LIMIT_MIB * MIB, memory=bfc_log.RecordedMemory(bfc_log.read_log(lines)))
    for event in bfc_log.read_log(lines[:at]):
        follow(bfc, event)
    assert {"current": bfc.in_use_bytes, "peak": bfc.peak_in_use_bytes} == reported


def test_the_same_request_fails_and_leaves_the_same_holes(real):
    lines = real[0]
    events = bfc_log.read_log(lines)
    (fails,) = [i for i, event in enumerate(events) if event.kind == "fail"]
    bfc = Bfc(LIMIT_MIB * MIB, memory=bfc_log.RecordedMemory(events))
    for event in events[:fails]:
        follow(bfc, event)
    with pytest.raises(OutOfMemory) as error:
        bfc.allocate(events[fails].size_bytes)
    assert error.value.shortage.fragmented
    assert [(chunk.address, chunk.size_bytes, chunk.in_use) for chunk in bfc.chunks()] == bfc_log.read_dump(lines)
