"""Random numbers in slices: other ones in each, as in one batch, and what would be the same in all is refused."""

import numpy as np
import pytest
from loop_bench import CLASSES, Bench, arrays, in_slices, mean, precision

from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow
ROWS = 12
SAME = "a seed that stays as it is"


@pytest.fixture(autouse=True)
def doubles():
    precision("float64")
    yield
    precision("float32")


def noisy(draw):
    """A step that adds noise to what the model says, and returns the noise."""
    import tensorflow as tf

    bench, drawn = Bench(), []

    def loss(y, p):
        drawn.append(tf.cast(draw(tf.shape(p)), p.dtype))
        return mean(y, p + drawn[-1])

    return bench.step(loss, result=lambda *_: drawn[-1])


def rows_of(step, calls=3):
    return np.concatenate([step(*arrays(ROWS, seed=seed)).numpy() for seed in range(calls)])


def draws():
    import tensorflow as tf

    mixed = tf.constant(np.random.default_rng(0).normal(size=(40, CLASSES)), tf.float32)
    return {
        "normal": tf.random.normal,
        "uniform": tf.random.uniform,
        "truncated": tf.random.truncated_normal,
        "dropout": lambda shape: tf.nn.dropout(tf.ones([shape[0], 40]), 0.5) @ mixed,
        "seeded": lambda shape: tf.random.normal(shape, seed=5),
        "inner function": tf.function(tf.random.normal),
    }


@pytest.mark.parametrize("name", ["normal", "uniform", "truncated", "dropout", "seeded", "inner function"])
def test_no_slice_in_a_graph_repeats_the_noise_of_another(name):
    """Operations with seeds are in the graph twice: in the loop, and after it."""
    import tensorflow as tf

    count = 3 if name == "seeded" else 2
    rows = rows_of(in_slices(tf.function(noisy(draws()[name])), count))
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_the_smaller_rest_of_a_batch_has_noise_of_its_own_in_fit():
    import keras
    import tensorflow as tf

    from legroom.changes.microbatch import split

    kept = []

    class Noise(keras.layers.Layer):
        def call(self, inputs):
            noise = tf.random.normal(tf.shape(inputs), dtype=inputs.dtype)
            tf.py_function(lambda values: kept.append(values.numpy()), [noise], [])
            return inputs + noise

    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((3,)), Noise(), keras.layers.Dense(3)])
    model.compile("sgd", "mse", jit_compile=False)
    split(model, 3)
    kept.clear()
    model.fit(np.ones((10, 3)), np.ones((10, 3)), batch_size=10, verbose=0)
    assert sorted(map(len, kept[-3:])) == [2, 4, 4]
    assert len(np.unique(np.concatenate(kept[-3:]), axis=0)) == 10


def test_seeds_outside_of_a_step_are_as_ever():
    import tensorflow as tf

    def drawn():
        tf.random.set_seed(1)
        return tf.function(lambda: tf.random.normal((4,)))().numpy()

    before = drawn()
    rows_of(in_slices(tf.function(noisy(tf.random.normal)), 2), 1)
    assert np.array_equal(drawn(), before)


def test_a_seed_that_stays_as_it_is_is_refused():
    """A whole batch has a row for each sample of it, and slices would all have the first ones."""
    import keras
    import tensorflow as tf

    count = tf.Variable(0)
    for draw in (
        lambda shape: tf.random.stateless_normal(shape, seed=(1, 2)),
        lambda shape: tf.random.stateless_uniform(shape, seed=tf.stack([count, 1])),
        lambda shape: tf.random.stateless_normal(shape, seed=tf.random.split(tf.constant([1, 2]))[0]),
        lambda shape: keras.random.normal(shape, seed=3),
        lambda shape: tf.nn.experimental.stateless_dropout(tf.ones(shape), 0.5, seed=(1, 2)),
    ):
        with pytest.raises(InputError, match=SAME):
            in_slices(noisy(draw))(*arrays())


def test_one_number_for_the_whole_batch_and_seeds_that_move_on_are_fine():
    import keras
    import tensorflow as tf

    seeds, generator = keras.random.SeedGenerator(1), tf.random.Generator.from_seed(1)
    for draw, different in (
        (lambda shape: tf.zeros(shape) + tf.random.stateless_normal((), seed=(1, 2)), 1),
        (lambda shape: keras.random.normal(shape, seed=seeds), 3 * ROWS),
        (generator.normal, 3 * ROWS),
        (lambda shape: tf.random.stateless_normal(shape, seed=generator.make_seeds(1)[:, 0]), 3 * ROWS),
    ):
        rows = rows_of(in_slices(tf.function(noisy(draw)), 3))
        assert len(np.unique(rows, axis=0)) == different
