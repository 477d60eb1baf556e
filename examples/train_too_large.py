"""A training that runs out of memory under 1 GiB. `legroom run --budget 1GiB examples/train_too_large.py` carries it through."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.Input((64, 64, 3)),
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(10),
    ]
)
model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)

random = np.random.default_rng(0)
images = random.random((768, 64, 64, 3)).astype("float32")
labels = random.integers(0, 10, 768)
history = model.fit(images, labels, batch_size=384, epochs=1, verbose=2)
print(f"trained: {int(model.optimizer.iterations)} updates of 384 samples, loss {history.history['loss'][-1]:.4f}")
