"""healthy. An eager loop with an optimizer, a list of numbers for the losses and a checkpoint every fifty steps."""

from leak_verdict import STEPS, tell  # isort: skip
import tempfile

import keras
import tensorflow as tf

import legroom

model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam()
losses = []
with tempfile.TemporaryDirectory() as folder, legroom.Watch() as watch:
    for step in range(STEPS):
        x = tf.random.normal([32, 32])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        slopes = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
        losses.append(float(loss))
        if step % 50 == 49:
            model.save_weights(f"{folder}/{step}.weights.h5")
        watch.step()
tell(watch)
