"""leaks: retracing. Sequences of every length, and a tf.function that is traced for each."""

from leak_verdict import STEPS, tell  # isort: skip
import tensorflow as tf

import legroom

weights = tf.Variable(tf.random.normal([16, 16]))


@tf.function
def train(tokens):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.relu(tokens @ weights))
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


with legroom.Watch() as watch:
    for step in range(STEPS):
        train(tf.ones([step + 1, 16]))
        watch.step()
        if watch.leak:
            break
tell(watch)
