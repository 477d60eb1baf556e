"""leaks: collected. fit() with a callback that keeps a copy of the weights after every batch."""

from leak_verdict import STEPS, tell  # isort: skip
import keras
import numpy as np

import legroom


class Keeper(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.kept = []

    def on_train_batch_end(self, batch, logs=None):
        self.kept.append(self.model.get_weights())


model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
x = np.random.rand(8 * STEPS, 64).astype("float32")
monitor = legroom.Monitor()
model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[Keeper(), monitor])
tell(monitor)
