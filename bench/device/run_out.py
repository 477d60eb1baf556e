"""Logs of real out-of-memory errors on a GPU: `python bench/device/run_out.py --out DIR [NAME…]`, on a machine with one.

Each case is a process of its own; where the card is to be taken, a second process holds all of its memory but a little. What they print goes
to DIR/NAME.log, as it is. `tests/data/logs` has some of them, with what is known of them beforehand in its manifest.
"""

import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

MIB = 2**20
CASES: dict[str, tuple[Any, int | None, str]] = {}  # name → function, MiB that the other process leaves, framework


def case(leave: int | None = None, framework: str = "tensorflow") -> Any:
    def kept(function: Any) -> Any:
        CASES[function.__name__] = function, leave, framework
        return function

    return kept


def hold(leave: int) -> None:
    """Take all of the card's memory but so many MiB, until this is ended."""
    cuda = ctypes.CDLL("libcudart.so.12")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    place = ctypes.c_void_p()
    print("HELD", cuda.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(free.value - leave * MIB)), flush=True)
    time.sleep(600)


def cnn(size: int = 128, width: int = 64, blocks: int = 8) -> Any:
    import keras

    x = inputs = keras.Input((size, size, 3))
    for _ in range(blocks):
        x = keras.layers.Conv2D(width, 3, padding="same", activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x)))


def train(model: Any, batch: int, size: int = 128, jit: bool = False) -> None:
    import keras
    import numpy as np

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=jit)
    model.fit(np.zeros((2 * batch, size, size, 3), "float32"), np.zeros(2 * batch, "int32"), batch_size=batch)


def limited(mib: int) -> None:
    import tensorflow as tf

    card = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(card, [tf.config.LogicalDeviceConfiguration(memory_limit=mib)])


def growing() -> None:
    import tensorflow as tf

    tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)


@case(leave=700)
def gpu_taken_fit() -> None:
    train(cnn(), 128)


@case(leave=900)
def gpu_taken_growing() -> None:
    growing()
    train(cnn(), 128)


@case(leave=300)
def gpu_taken_product() -> None:
    import tensorflow as tf

    a = tf.random.normal([6000, 6000])
    print(tf.reduce_sum(tf.matmul(a, a)))


@case(leave=60)
def gpu_taken_all() -> None:
    import tensorflow as tf

    print(tf.reduce_sum(tf.zeros([100, 100])))


@case(leave=460)
def gpu_cudnn_start() -> None:
    import tensorflow as tf

    growing()
    x = tf.random.normal([4, 64, 64, 16])
    print(tf.reduce_sum(tf.nn.conv2d(x, tf.random.normal([3, 3, 16, 16]), 1, "SAME")))


@case(leave=420)
def gpu_cublas_start() -> None:
    import tensorflow as tf

    growing()
    a = tf.random.normal([200, 200])
    print(tf.reduce_sum(tf.matmul(a, a)))


@case(leave=1500, framework="jax")
def gpu_taken_jax() -> None:
    import jax

    step = jax.jit(lambda a: (a @ a).sum())
    print(step(jax.numpy.ones((20_000, 20_000))))


@case(leave=330, framework="jax")
def gpu_cudnn_jax() -> None:
    import jax

    x, kernel = jax.numpy.ones((8, 16, 64, 64)), jax.numpy.ones((16, 16, 3, 3))
    print(jax.lax.conv(x, kernel, (1, 1), "SAME").sum())


@case()
def gpu_batch() -> None:
    limited(4000)
    train(cnn(), 256)


@case()
def gpu_batch_eager() -> None:
    import tensorflow as tf

    limited(3000)
    tf.config.run_functions_eagerly(True)
    train(cnn(), 256)


@case()
def gpu_weights() -> None:
    import keras

    limited(3000)
    model = keras.Sequential(
        [keras.Input((224, 224, 3)), keras.layers.Flatten(), keras.layers.Dense(4096), keras.layers.Dense(10)]
    )
    train(model, 8, 224)


@case()
def gpu_torn() -> None:
    import tensorflow as tf

    limited(2000)
    held = [tf.zeros([8, MIB]) + number for number in range(58)]
    del held[::2]
    print(tf.reduce_sum(tf.zeros([100, MIB]) + 1.0))


@case()
def gpu_kept() -> None:
    import keras
    import numpy as np
    import tensorflow as tf

    limited(1500)
    model = cnn(64, 16, 4)
    optimizer, history = keras.optimizers.SGD(0.01), []
    for epoch in range(40):
        for _ in range(20):
            with tf.GradientTape() as tape:
                features = model(np.zeros((32, 64, 64, 3), "float32"))
                loss = tf.reduce_mean(features)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            history.append((loss, tape.gradient, tf.random.normal([2, MIB // 2])))
        print(f"Epoch {epoch + 1}/40 loss {float(loss):.4f}", flush=True)


@case()
def gpu_huge() -> None:
    import tensorflow as tf

    limited(8000)
    a = tf.random.normal([60_000, 64])
    print(tf.reduce_sum(tf.norm(a[:, None] - a[None], axis=-1)))


@case()
def gpu_scratch() -> None:
    limited(2300)
    train(cnn(256, 64, 3), 16, 256, jit=True)


@case(framework="jax")
def gpu_jax_step() -> None:
    import jax

    def loss(w: Any, x: Any) -> Any:
        for _ in range(24):
            x = jax.numpy.tanh(x @ w)
        return x.sum()

    w, x = jax.numpy.ones((4096, 4096)), jax.numpy.ones((2_000_000, 4096))
    print(jax.jit(jax.grad(loss))(w, x).sum())


def run(name: str, out: pathlib.Path) -> None:
    """The case's process, and the one that holds the card."""
    _, leave, framework = CASES[name]
    env = os.environ | {"KERAS_BACKEND": framework}
    env.pop("TF_CPP_MIN_LOG_LEVEL", None)
    holder = None
    if leave is not None:
        command = [sys.executable, __file__, "--hold", str(leave)]
        holder = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        print(name, holder.stdout.readline().strip(), flush=True)
        env |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if framework == "jax" else {}
    try:
        command = [sys.executable, __file__, "--case", name]
        started = time.monotonic()
        with (out / f"{name}.log").open("w") as log:
            done = subprocess.run(command, env=env, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=90)
        print(name, done.returncode, round(time.monotonic() - started), "s", flush=True)
    except subprocess.TimeoutExpired:
        print(name, "timed out", flush=True)
    finally:
        if holder is not None:
            holder.kill()
            holder.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--hold", type=int)
    parser.add_argument("--case")
    options = parser.parse_args()
    if options.hold is not None:
        hold(options.hold)
    elif options.case:
        CASES[options.case][0]()
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        for name in options.names or CASES:
            run(name, options.out)


if __name__ == "__main__":
    main()
