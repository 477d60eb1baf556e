"""leaks: retracing. A tf.function that is made anew in every step and remembered by its number."""

from leak_verdict import STEPS, tell  # isort: skip
import tensorflow as tf

import legroom

weights = tf.Variable(tf.random.normal([32, 32]))
steps = {}


def make():
    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights) ** 2)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))

    return train


with legroom.Watch() as watch:
    for step in range(STEPS):
        steps[step] = make()
        steps[step](tf.ones([8, 32]))
        watch.step()
        if watch.leak:
            break
tell(watch)
