"""healthy. fit() with large validation batches after every epoch, and the monitor's samples in a file."""

from leak_verdict import tell  # isort: skip
import keras
import numpy as np

import legroom

model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
x = np.random.rand(400, 64).astype("float32")
large = np.random.rand(20000, 64).astype("float32")
monitor = legroom.Monitor()
model.fit(
    *(x, x[:, :1]), batch_size=8, epochs=6, verbose=0, callbacks=[monitor],
    validation_data=(large, large[:, :1]), validation_batch_size=10000,
)  # fmt: skip
tell(monitor)
