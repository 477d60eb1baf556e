"""healthy. Images that are decoded once and remembered: memory grows for 120 steps, more and more slowly, and stays."""

from leak_verdict import STEPS, tell  # isort: skip
import random
from functools import lru_cache

import numpy as np
import tensorflow as tf

import legroom

random.seed(1)
weights = tf.Variable(tf.random.normal([64, 8]))


@lru_cache
def image(number):
    return np.full((64, 64, 64), number / 100, "float32")


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights) ** 2)
    weights.assign_sub(1e-4 * tape.gradient(loss, weights))


with legroom.Watch() as watch:
    for _ in range(STEPS):
        train(tf.convert_to_tensor(image(random.randrange(60))))
        watch.step()
tell(watch)
