"""A small image classifier, as many tutorials write it. `legroom estimate examples/train_cnn.py --gpu t4`"""

import keras
import numpy as np
from keras import layers

model = keras.Sequential(
    [
        keras.Input((128, 128, 3)),
        layers.Conv2D(64, 3, padding="same", activation="relu"),
        layers.BatchNormalization(),
        layers.Conv2D(64, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(128, 3, padding="same", activation="relu"),
        layers.BatchNormalization(),
        layers.Conv2D(128, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(256, 3, padding="same", activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dropout(0.5),
        layers.Dense(10),
    ]
)
model.compile(
    optimizer="adam",
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)

images = np.zeros((1024, 128, 128, 3), "float32")
labels = np.zeros((1024,), "int32")
model.fit(images, labels, batch_size=512, epochs=5)
