"""healthy: filling. A replay buffer with a limit, which is not full after 300 steps."""

from leak_verdict import STEPS, tell  # isort: skip
from collections import deque

import tensorflow as tf

import legroom

weights = tf.Variable(tf.random.normal([128, 128]))
replay = deque(maxlen=400)
with legroom.Watch() as watch:
    for _ in range(STEPS):
        x = tf.random.normal([128, 128])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights) ** 2)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        replay.append(x)
        watch.step()
tell(watch)
