"""healthy: filling. A tf.data cache() in RAM that is not full after 300 steps."""

from leak_verdict import STEPS, tell  # isort: skip
import tensorflow as tf

import legroom

images = tf.data.Dataset.range(1600).map(lambda number: tf.random.normal([32, 32, 3]))
data = images.cache().batch(4).repeat()
weights = tf.Variable(tf.random.normal([3072, 8]))


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.reshape(x, [-1, 3072]) @ weights) ** 2)
    weights.assign_sub(1e-4 * tape.gradient(loss, weights))


with legroom.Watch() as watch:
    for batch in data.take(STEPS):
        train(batch)
        watch.step()
tell(watch)
