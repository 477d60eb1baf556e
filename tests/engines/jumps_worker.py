"""Prints, as JSON, what Legroom says that steps with loops take and what they took: kind → [said, measured].

Run by test_jumps.py in a process of its own, whose CPU has the BFC allocator. On one core, since the peak depends on the order.
"""

import json
import os
import sys

import keras
import tensorflow as tf

import legroom

ROWS, WIDTH = 1024, 512  # 2 MiB


class Forward(keras.layers.Layer):
    """Adds to its input the sum of what a function gives for it; without gradients, so that there is one order only."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return x + tf.reduce_sum(tf.sin(self.function(tf.stop_gradient(x))))


def grown(x):
    shapes = (tf.TensorShape([]), tf.TensorShape([None, WIDTH]))
    return tf.while_loop(
        lambda i, y: i < 4, lambda i, y: (i + 1, tf.concat([y, tf.exp(x)], 0)), (0, x), shape_invariants=shapes
    )[1]


def grows(x):
    y = grown(x)
    return tf.cos(y) * tf.exp(y) * tf.tan(y)


def grows_and_is_asked(x):
    """What comes after the loop cannot have the shape of what goes in."""
    y = tf.reshape(grown(x), (5, ROWS, WIDTH))
    return tf.cos(y) * tf.exp(y) * tf.tan(y)


def in_a_branch(x):
    def loop():
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.concat([y, y], 1)[:, WIDTH:] * 2.0), (0, x))[1]

    return tf.cond(tf.shape(x)[0] > 1, loop, lambda: x)


def branch_inside(x):
    def body(i, y):
        return i + 1, tf.cond(i < 2, lambda: tf.concat([y, y, y], 1)[:, WIDTH : 2 * WIDTH], lambda: tf.exp(y))

    return tf.while_loop(lambda i, y: i < 4, body, (0, x))[1]


def nested(x):
    def inner(y):
        return tf.while_loop(lambda j, y: j < 2, lambda j, y: (j + 1, tf.concat([y, y], 0)[ROWS:]), (0, y))[1]

    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.exp(inner(y))), (0, x))[1]


KINDS = (grows, grows_and_is_asked, in_a_branch, branch_inside, nested)


def model_of(function):
    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, keras.layers.Dense(2)(Forward(function)(inputs)))
    model.compile("sgd", "mse", jit_compile=False)
    return model


def measured(model, x, y):
    for _ in range(3):
        tf.config.experimental.reset_memory_stats("CPU:0")
        model.train_on_batch(x, y)
    return tf.config.experimental.get_memory_info("CPU:0")["peak"]


def main():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    x, y = tf.zeros((ROWS, WIDTH)), tf.zeros((ROWS, 2))
    found = {}
    for function in KINDS:
        model = model_of(function)
        real = measured(model, x, y)
        found[function.__name__] = [legroom.estimate(model, (x, y), budget="8GiB", engine="op").peak_bytes, real]
        keras.backend.clear_session()
        del model
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
