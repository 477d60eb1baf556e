"""leaks: predict. A loop, as in reinforcement learning, that calls predict() for every state."""

from leak_verdict import STEPS, tell  # isort: skip
import keras
import numpy as np

import legroom

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)])
state = np.random.rand(1, 8).astype("float32")
with legroom.Watch() as watch:
    for _ in range(STEPS):
        state[:, :2] = model.predict(state, verbose=0)
        watch.step()
        if watch.leak:
            break
tell(watch)
