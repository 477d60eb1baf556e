"""healthy. A tf.function that is traced for six lengths, here and there within the first hundred steps."""

from leak_verdict import STEPS, tell  # isort: skip
import tensorflow as tf

import legroom

weights = tf.Variable(tf.random.normal([64, 64]))


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        hidden = x
        for _ in range(10):
            hidden = tf.nn.relu(hidden @ weights)
        loss = tf.reduce_mean(hidden)
    weights.assign_sub(1e-6 * tape.gradient(loss, weights))


with legroom.Watch() as watch:
    for step in range(STEPS):
        train(tf.ones([16 * (1 + min(step // 18, step % 6)), 64]))
        watch.step()
tell(watch)
