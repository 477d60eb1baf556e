"""Measured growth of RSS against the host engine's prediction. `python bench/host.py [--write] [NAME…]` (about 4 min).

Every pipeline runs in a process of its own: it warms the framework up, makes its arrays, notes its RSS, builds the pipeline
and takes one epoch of it; the growth is the highest RSS (VmHWM) less the first. The prediction is made from the description
of the same live objects. It is right within 15 % or 100 MB.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "accuracy-host.md"
TOLERANCE, TOLERANCE_BYTES = 0.15, 100_000_000

# Each pipeline: (code before the first RSS, code that makes `data` and, for fit, `fit` arguments). `np` and `tf` are there.
ONES = "a = np.ones((1000, 75000), 'float32')"
MADE = "tf.data.Dataset.range({n}).map(lambda i: tf.fill([{floats}], tf.cast(i, tf.float32)))"
TFRECORD = """
names = [os.path.join(folder, f'{k}.tfrecord') for k in range(8)]
for name in names:
    with tf.io.TFRecordWriter(name) as writer:
        for i in range(30):
            writer.write(os.urandom(1_000_000))
"""
MODEL = """
import keras
model = keras.Sequential([keras.layers.Rescaling(1.0), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, {width}), "{dtype}"), np.ones((8, 1), "float32"), batch_size=4, verbose=0)
"""
PYDATASET = """
class Batches(keras.utils.PyDataset):
    def __len__(self): return 60
    def __getitem__(self, i): return np.full((32, 60000), i, 'float32'), np.ones((32, 1), 'float32')
"""
DATASETS = {
    "from_tensor_slices(numpy 300 MB).batch(32)": (ONES, "data = tf.data.Dataset.from_tensor_slices(a).batch(32)"),
    "from_tensor_slices(tensor 300 MB).batch(32)": (
        "a = tf.ones((1000, 75000))",
        "data = tf.data.Dataset.from_tensor_slices(a).batch(32)",
    ),
    "shuffle(300 × 1 MB).batch(8)": ("", f"data = {MADE.format(n=600, floats=250000)}.shuffle(300).batch(8)"),
    "batch(8).shuffle(60)": ("", f"data = {MADE.format(n=800, floats=250000)}.batch(8).shuffle(60)"),
    "cache of 400 MB, batch(16)": ("", f"data = {MADE.format(n=400, floats=250000)}.cache().batch(16)"),
    "batch(8).prefetch(50), slow consumer": (
        "pause = 0.02",
        f"data = {MADE.format(n=800, floats=250000)}.batch(8).prefetch(50)",
    ),
    "uint8 → float32 by parallel map, batch(64), prefetch": (
        "a = np.ones((800, 250000), 'uint8')",
        "data = tf.data.Dataset.from_tensor_slices(a)"
        ".map(lambda x: tf.cast(x, tf.float32) / 255.0, num_parallel_calls=tf.data.AUTOTUNE).batch(64).prefetch(tf.data.AUTOTUNE)",
    ),
    "parallel map of 64 MB batches, slow consumer": (
        "pause = 0.2",
        f"data = {MADE.format(n=800, floats=250000)}.batch(64).map(lambda x: x * 2 + 1, num_parallel_calls=4)",
    ),
    "interleave over files, each shuffled": (
        TFRECORD,
        "data = tf.data.Dataset.from_tensor_slices(names).interleave("
        "lambda n: tf.data.TFRecordDataset(n).shuffle(20), cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)",
    ),
    "TFRecord.shuffle(150).batch(8)": (TFRECORD, "data = tf.data.TFRecordDataset(names).shuffle(150).batch(8)"),
    "generator of 32 MB, prefetch(4), slow consumer": (
        "pause = 0.1\ndef generate():\n    for i in range(20): yield np.full(8_000_000, i, 'float32')",
        "data = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((8_000_000,), tf.float32)).prefetch(4)",
    ),
    "padded_batch(64) of 0.4 to 4 MB": (
        "",
        "data = tf.data.Dataset.range(400).map(lambda i: tf.fill([tf.cast(i % 10 + 1, tf.int32) * 100000], 1.0)).padded_batch(64, [1000000])",
    ),
    "zip of two shuffles": (
        "",
        f"data = tf.data.Dataset.zip(({MADE.format(n=300, floats=250000)}.shuffle(100), "
        f"{MADE.format(n=300, floats=250000)}.shuffle(200))).batch(16)",
    ),
    "repeat(3).shuffle(500)": ("", f"data = {MADE.format(n=200, floats=250000)}.repeat(3).shuffle(500)"),
    "take(100).shuffle(5000)": ("", f"data = {MADE.format(n=2000, floats=250000)}.take(100).shuffle(5000).batch(10)"),
    "window(100), batched": (
        "",
        f"data = {MADE.format(n=300, floats=250000)}.window(100, shift=50).flat_map(lambda w: w.batch(100))",
    ),
    "from_tensor_slices(numpy), map, shuffle(1000)": (
        ONES,
        "data = tf.data.Dataset.from_tensor_slices(a).map(lambda x: x + 1).shuffle(1000).batch(16)",
    ),
    "image resize 500² → 1000², batch(16), prefetch": (
        "",
        "data = tf.data.Dataset.range(200).map(lambda i: tf.fill([500, 500, 3], tf.cast(i, tf.uint8)))"
        ".map(lambda x: tf.image.resize(tf.cast(x, tf.float32) / 255.0, [1000, 1000]), num_parallel_calls=tf.data.AUTOTUNE)"
        ".batch(16).prefetch(tf.data.AUTOTUNE)",
    ),
    "shuffle of 1,000,000 scalars": ("", "data = tf.data.Dataset.range(1500000).shuffle(1000000).batch(10000)"),
    "parallel map of 8 MB batches": (
        "",
        f"data = {MADE.format(n=800, floats=250000)}.batch(8).map(lambda x: x * 2 + 1, num_parallel_calls=tf.data.AUTOTUNE)",
    ),
    "from_tensor_slices(numpy, labels).shuffle.batch.prefetch": (
        "a, b = np.random.randint(0, 255, (6000, 128, 128, 3), 'uint8'), np.zeros(6000, 'int64')",
        "data = tf.data.Dataset.from_tensor_slices((a, b)).shuffle(2000)"
        ".map(lambda x, y: (tf.image.random_flip_left_right(tf.cast(x, tf.float32) / 255.0), y), num_parallel_calls=tf.data.AUTOTUNE)"
        ".batch(64).prefetch(tf.data.AUTOTUNE)",
    ),
    "captured array of 40 MB": (
        "a = np.ones((800, 12500), 'float32')",
        "data = tf.data.Dataset.range(800).map(lambda i: tf.gather(a, i)).batch(16)",
    ),
    "unbatch of 64 MB": ("", f"data = {MADE.format(n=300, floats=250000)}.batch(64).unbatch()"),
}
FITS = {
    "fit(numpy float32 300 MB)": ("tensorflow", MODEL.format(width=75000, dtype="float32") + ONES, "data = a", ""),
    "fit(numpy float64 400 MB)": (
        "tensorflow",
        MODEL.format(width=50000, dtype="float32") + "a = np.ones((1000, 50000), 'float64')",
        "data = a",
        "",
    ),
    "fit(numpy uint8 300 MB), validation_split 0.2": (
        "tensorflow",
        MODEL.format(width=75000, dtype="uint8") + "a = np.ones((4000, 75000), 'uint8')",
        "data = a",
        "validation_split=0.2",
    ),
    "fit(PyDataset), 4 workers, queue of 10": (
        "tensorflow",
        MODEL.format(width=60000, dtype="float32") + PYDATASET,
        "data = Batches(workers=4, max_queue_size=10)",
        "",
    ),
    "fit(numpy float32 300 MB), JAX": ("jax", MODEL.format(width=75000, dtype="float32") + ONES, "data = a", ""),
    "fit(numpy float64 400 MB), JAX": (
        "jax",
        MODEL.format(width=50000, dtype="float32") + "a = np.ones((1000, 50000), 'float64')",
        "data = a",
        "",
    ),
}
PROGRAM = """
import gc, json, os, sys, time
import numpy as np
pause, folder, framework = 0.0, sys.argv[1], {framework!r}
os.environ["KERAS_BACKEND"] = framework
if framework == "tensorflow":
    import tensorflow as tf
    for _ in tf.data.Dataset.range(4).map(lambda x: x + 1, num_parallel_calls=2).batch(2).prefetch(1): pass
def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))
import legroom.engines.host.describe, legroom.engines.host.assemble
{setup}
gc.collect()
first = status("VmRSS")
with open("/proc/self/clear_refs", "w") as file: file.write("5")
{make}
{consume}
highest = status("VmHWM")
from legroom.engines.host.assemble import growth_of, usable_cores
from legroom.engines.host.describe import describe
from legroom.engines.host.holdings import Machine
from legroom.engines.host.stages import data_from
described = describe(data{given}, may_sample=True)
again = data_from(json.loads(json.dumps(described.as_dict())))
assert again == described
span = growth_of(again, framework, Machine(usable_cores(), 8 * 2**30, 4 * 2**30))
print(json.dumps({{"measured": highest - first, "low": span.low, "size": span.size, "high": span.high, "notes": described.notes}}))
"""
ITERATE = "for _ in data: time.sleep(pause)"


def measure(framework: str, setup: str, make: str, consume: str, given: str = "") -> dict[str, int]:
    """One pipeline in a process of its own: measured growth and the prediction."""
    code = PROGRAM.format(framework=framework, setup=setup, make=make, consume=consume, given=given)
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(
            [sys.executable, "-c", code, folder], capture_output=True, text=True, check=False, env=env, timeout=300
        )
    if done.returncode:
        raise RuntimeError(f"{make}\n{done.stderr[-2000:]}")
    result: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure_named(name: str) -> dict[str, int]:
    if name in DATASETS:
        setup, make = DATASETS[name]
        return measure("tensorflow", setup, make, ITERATE)
    framework, setup, make, arguments = FITS[name]
    if "PyDataset" in name:
        return measure(framework, setup, make, f"model.fit(data, verbose=0, {arguments})")
    labels = "\ny = np.ones((len(a), 1), 'float32')"
    consume = f"model.fit(data, y, batch_size=32, verbose=0, {arguments})"
    return measure(framework, setup + labels, make, consume, f", y, batch_size=32, {arguments}".rstrip(", "))


def is_right(result: dict[str, int]) -> bool:
    off = abs(result["size"] - result["measured"])
    return off <= TOLERANCE_BYTES or off <= TOLERANCE * result["measured"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of the names of the pipelines to measure")
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy-host.md")
    asked = parser.parse_args()
    lines = ["| pipeline | measured MB | predicted MB | off | bounds MB | right |", "|---|---|---|---|---|---|"]
    for name in (*DATASETS, *FITS):
        if asked.names and not any(part in name for part in asked.names):
            continue
        result = measure_named(name)
        measured, size = result["measured"], result["size"]
        off = f"{(size - measured) / max(1, measured):+.0%}"
        bounds = f"{result['low'] / 1e6:.0f}–{result['high'] / 1e6:.0f}"
        right = "yes" if is_right(result) else "no"
        lines.append(f"| {name} | {measured / 1e6:.0f} | {size / 1e6:.0f} | {off} | {bounds} | {right} |")
        print(lines[-1], flush=True)
    if asked.write:
        head = PAGE.read_text().partition("<!-- table -->")[0]
        PAGE.write_text(f"{head}<!-- table -->\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
