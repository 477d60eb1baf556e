"""Training scripts for which RAM is what runs out: as they are written, and with what `legroom plan` proposes."""

HEAD = """
import atexit, os, sys
import numpy as np
import keras
{tensorflow}
def say():
    with open("/proc/self/status") as file:
        peak = next(line.split()[1] for line in file if line.startswith("VmHWM"))
    with open(os.environ["PEAK_FILE"], "a") as out:
        out.write(peak + "\\n")
atexit.register(say)
def filled(shape, dtype):
    made = np.empty(shape, dtype)
    for start in range(0, len(made), 256):
        made[start : start + 256] = start % 200
    return made
def model_of(shape):
    parts = [keras.Input(shape), keras.layers.Rescaling(0.01), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential(parts)
    model.compile("sgd", "mse")
    return model
"""
ARRAYS = """
x, y = filled({shape}, "{dtype}"), np.zeros({rows}, "float32")
model_of(x.shape[1:]).fit(x, y, batch_size={batch}, epochs=2, verbose=0{more})
"""
SLICES = """
x, y = filled((6400, 48, 1024), "uint8"), np.zeros(6400, "float32")
data = {data}
model_of(x.shape[1:]).fit(data, epochs=2, verbose=0)
"""
MADE = """
made = tf.data.Dataset.range(2000).map(lambda i: (tf.fill([64, 1024], tf.cast(i, tf.float32)), tf.cast(i, tf.float32)))
model_of((64, 1024)).fit({data}, epochs=2, verbose=0)
"""


def arrays(rows, row, dtype, more="", batch=32):
    text = ARRAYS.format(shape=(rows, *row), rows=rows, dtype=dtype, more=more, batch=batch)
    return HEAD.format(tensorflow="") + text


def slices(data):
    return HEAD.format(tensorflow="import tensorflow as tf\nimport legroom") + SLICES.format(data=data)


def made(data):
    return HEAD.format(tensorflow="import tensorflow as tf") + MADE.format(data=data)


PLAIN_SLICES = "tf.data.Dataset.from_tensor_slices((x, y)).batch(32).prefetch(2)"
# Name: the script, the action that `legroom plan` proposes, and the script with it (None: `legroom run --ram 64MiB`).
SCRIPTS = {
    "fit(float32 arrays, 400 MiB)": (arrays(1600, (64, 1024), "float32"), "stream", None),
    "fit(float64 arrays, 600 MiB)": (arrays(1200, (64, 1024), "float64"), "stream", None),
    "fit(uint8 arrays, 400 MiB)": (arrays(6400, (64, 1024), "uint8"), "stream", None),
    "fit(float32 rows of 80 bytes, 153 MiB)": (arrays(2_000_000, (20,), "float32", batch=1024), "stream", None),
    "fit(float32 arrays, 400 MiB), validation_split": (
        arrays(1600, (64, 1024), "float32", ", validation_split=0.2"),
        "stream",
        None,
    ),
    "from_tensor_slices(uint8, 300 MiB)": (
        slices(PLAIN_SLICES),
        "stream_source",
        slices('legroom.stream((x, y), batch_size=32, ram="64MiB")'),
    ),
    "batch(32).shuffle(40)": (
        made("made.batch(32).shuffle(40)"),
        "shuffle_first",
        made("made.shuffle(40).batch(32)"),
    ),
    "shuffle(1500).batch(32)": (
        made("made.shuffle(1500).batch(32)"),
        "smaller_buffer",
        made("made.shuffle(150).batch(32)"),
    ),
    "cache()": (made("made.cache().batch(32)"), "no_cache", made("made.batch(32)")),
}
