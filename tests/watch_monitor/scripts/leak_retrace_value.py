"""leaks: retracing. A custom loop that passes the step's number to a tf.function as a Python integer."""

from leak_verdict import STEPS, tell  # isort: skip
import tensorflow as tf

import legroom

weights = tf.Variable(tf.random.normal([32, 32]))


@tf.function
def train(x, number):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights) ** 2) / float(number + 1)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


with legroom.Watch(steps=STEPS) as watch:
    for step in range(STEPS):
        train(tf.ones([8, 32]), step)
        watch.step()
        if watch.leak:
            break
tell(watch)
