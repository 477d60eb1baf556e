"""leaks: rebuilt. A search that builds a model for each trial and never clears the session."""

from leak_verdict import STEPS, tell  # isort: skip
import keras
import numpy as np

import legroom

x = np.random.rand(8, 32).astype("float32")
with legroom.Watch() as watch:
    for _ in range(STEPS):
        model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
        model(x)
        watch.step()
        if watch.leak:
            break
tell(watch)
