"""A training whose weights count how often each sample was used: a script for `bench/run.py` to kill.

    python bench/run_script.py SOURCE [--seed N] [--slow SECONDS] [--fits N]

Each sample is a row of the identity matrix, the loss the negative sum of the outputs, the rate 1: a weight grows by one for each
use of its sample. A second model with dropout and Adam, trained on the same batches, shows whether anything else differs.
"""

import argparse
import os
import time

import keras
import numpy as np

SAMPLES, BATCH, EPOCHS = 480, 16, 4


def source_of(kind, x, y, seed):
    """Keras' arguments for the same samples from another kind of source."""
    if kind in ("arrays", "ordered"):
        return {"x": x, "y": y, "batch_size": BATCH, "shuffle": kind == "arrays"}
    if kind == "tfdata":
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(SAMPLES, seed=seed).batch(BATCH).prefetch(2)
        return {"x": data}
    if kind == "generator":

        def batches():
            order = np.random.default_rng(seed)
            while True:
                places = order.permutation(SAMPLES)
                for start in range(0, SAMPLES, BATCH):
                    part = places[start : start + BATCH]
                    yield x[part], y[part]

        return {"x": batches(), "steps_per_epoch": SAMPLES // BATCH}
    if kind == "pydataset":

        class Batches(keras.utils.PyDataset):
            def __len__(self):
                return SAMPLES // BATCH

            def __getitem__(self, index):
                return x[index * BATCH : (index + 1) * BATCH], y[index * BATCH : (index + 1) * BATCH]

        return {"x": Batches(), "shuffle": False}
    import legroom

    return {"x": legroom.stream((x, y), batch_size=BATCH, shuffle=True, seed=seed or 0)}


class Slow(keras.callbacks.Callback):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self.seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--fits", type=int, default=1)
    options = parser.parse_args()
    if options.seed is not None:
        keras.utils.set_random_seed(options.seed)
    x = np.eye(SAMPLES, dtype="float32")
    y = np.ones((SAMPLES, 1), "float32")
    inputs = keras.Input((SAMPLES,))
    count = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(inputs)
    counter = keras.Model(inputs, count)
    rest = keras.layers.Dense(8, activation="relu")(inputs)
    rest = keras.layers.Dense(1)(keras.layers.Dropout(0.3)(rest))
    other = keras.Model(inputs, rest)
    counter.compile(keras.optimizers.SGD(1.0), loss=lambda y, p: -keras.ops.sum(p), jit_compile=False)
    other.compile("adam", "mse", jit_compile=False)
    compiled = keras.backend.backend() == "jax"
    if compiled:
        counter.compile(keras.optimizers.SGD(1.0), loss=lambda y, p: -keras.ops.sum(p))
        other.compile("adam", "mse")
    loss = 0.0
    for _ in range(options.fits):
        for model in (counter, other):
            given = source_of(options.source, x, y, options.seed)
            slow = [Slow(options.slow)]
            history = model.fit(**given, epochs=EPOCHS, verbose=0, callbacks=slow)
            loss = history.history["loss"][-1]
            assert len(history.history["loss"]) == EPOCHS
    used = np.array(counter.get_weights()[0])
    wrong = int((used != EPOCHS * options.fits).sum())
    total = float(sum(np.abs(np.asarray(w, "float64")).sum() for w in other.get_weights()))
    print(f"RESULT {wrong} {loss:.9g} {total:.12g} {int(other.optimizer.iterations)} {os.getpid()}", flush=True)


if __name__ == "__main__":
    main()
