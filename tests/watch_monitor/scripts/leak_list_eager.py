"""leaks: collected. An eager loop that keeps every step's activations in a list."""

from leak_verdict import STEPS, tell  # isort: skip
import tensorflow as tf

import legroom


def main():
    weights = tf.Variable(tf.random.normal([64, 256]))
    history = []
    with legroom.Watch() as watch:
        for _ in range(STEPS):
            with tf.GradientTape() as tape:
                hidden = tf.nn.relu(tf.random.normal([64, 64]) @ weights)
                loss = tf.reduce_mean(hidden)
            weights.assign_sub(0.01 * tape.gradient(loss, weights))
            history.append({"loss": loss, "hidden": hidden})
            watch.step()
            if watch.leak:
                break
    tell(watch)


main()
