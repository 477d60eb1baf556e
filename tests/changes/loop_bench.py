"""A small model with a training step of one's own, for tests that cut it."""

import numpy as np

import legroom

ROWS, FEATURES, CLASSES = 11, 5, 3
EXACT = 1e-11


def precision(name):
    import keras

    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)


def arrays(rows=ROWS, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(rows, FEATURES)), random.normal(size=(rows, CLASSES))


class Bench:
    """A small model, an optimizer, and what a step needs of both."""

    def __init__(self, *extra):
        import keras

        keras.utils.set_random_seed(1)
        layers = keras.layers
        middle = [make() for make in extra]
        self.model = keras.Sequential(
            [keras.Input((FEATURES,)), layers.Dense(7, "tanh"), *middle, layers.Dense(CLASSES)]
        )
        self.optimizer = keras.optimizers.Adam(0.01)

    @property
    def weights(self):
        return [variable.numpy() for variable in self.model.variables]

    def step(self, loss_of, change=lambda gradients: gradients, result=None):
        """The usual step: `loss_of(y, p)` differentiated, `change` done to gradients, `result` returned."""
        import tensorflow as tf

        def step(x, y):
            with tf.GradientTape() as tape:
                p = self.model(x, training=True)
                loss = loss_of(y, p)
            gradients = change(tape.gradient(loss, self.model.trainable_variables))
            self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
            return loss if result is None else result(loss, y, p)

        return step


def mean(y, p):
    import tensorflow as tf

    return tf.reduce_mean((p - y) ** 2)


def total(y, p):
    import tensorflow as tf

    return tf.reduce_sum((p - y) ** 2) / 10


def clipped(gradients):
    import tensorflow as tf

    return tf.clip_by_global_norm(gradients, 0.1)[0]


def in_slices(step, count=4, **options):
    return legroom.train_step(step, micro_batches=count, **options)


def difference(one, other):
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True))
