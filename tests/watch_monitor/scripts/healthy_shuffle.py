"""healthy. fit() on a pipeline with a large shuffle buffer and prefetching, over three epochs."""

from leak_verdict import tell  # isort: skip
import keras
import tensorflow as tf

import legroom

rows = tf.data.Dataset.range(3200).map(lambda number: (tf.random.normal([512]), tf.random.normal([1])))
data = rows.shuffle(2000).batch(32).prefetch(tf.data.AUTOTUNE)
model = keras.Sequential([keras.Input((512,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
monitor = legroom.Monitor()
model.fit(data, epochs=3, verbose=0, callbacks=[monitor])
tell(monitor)
