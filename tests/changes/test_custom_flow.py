"""What a training step computes from what: samples that decide, weights that have changed, and comparisons made to come out otherwise."""

import numpy as np
import pytest
from loop_bench import CLASSES, EXACT, FEATURES, Bench, arrays, difference, in_slices, mean, precision

from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow


@pytest.fixture(autouse=True)
def doubles():
    precision("float64")
    yield
    precision("float32")


def masked_by(left):
    """A mean over the entries whose label passes."""
    import tensorflow as tf

    def loss(y, p):
        mask = tf.cast(left(y), p.dtype)
        return tf.reduce_sum(mask * (p - y) ** 2) / (tf.reduce_sum(mask) + 1e-9)

    return loss


def of_a_table(y):
    import tensorflow as tf

    table = tf.constant([1.0] * 7 + [0.0] + [1.0] * 40, tf.float64)
    return tf.gather(table, tf.cast(tf.clip_by_value(tf.abs(y), 0, 40), tf.int32)) > 0.5


def of_a_computed_number(y):
    import tensorflow as tf

    return tf.floor(y / 100) != 7


def of_its_largest_class(y):
    import tensorflow as tf

    return tf.repeat(tf.argmax(100 * tf.abs(y) > 1e6, -1)[:, None] != 2, CLASSES, 1)


@pytest.mark.parametrize("left", [of_a_table, of_a_computed_number, of_its_largest_class])
@pytest.mark.parametrize("graph", [False, True])
def test_a_mask_that_no_sample_shows_is_refused(left, graph):
    import tensorflow as tf

    bench = Bench()
    before = bench.weights
    step = bench.step(masked_by(left))
    with pytest.raises(InputError, match="neither a mean over the samples nor a sum"):
        in_slices(tf.function(step) if graph else step)(*arrays())
    assert difference(bench.weights, before) == 0


def test_samples_that_a_step_weighs_by_comparing_them_are_no_reason():
    """Truths that come out otherwise leave a mean a mean."""
    import tensorflow as tf

    def loss(y, p):
        each = tf.where(tf.abs(p - y) < 1.0, 0.5 * (p - y) ** 2, tf.abs(p - y) - 0.5)
        worth = tf.where(y > 1e6, 3.0, 1.0)
        return tf.reduce_mean(tf.cast(worth, p.dtype) * each)

    one, other = Bench(), Bench()
    whole, parts = one.step(loss), in_slices(other.step(loss))
    for seed in range(3):
        x, y = arrays(seed=seed)
        y[seed] = 2e6
        assert float(parts(x, y)) == pytest.approx(float(whole(x, y)), rel=1e-12)
    assert difference(one.weights, other.weights) < EXACT * 1e6


@pytest.mark.parametrize("graph", [False, True])
def test_what_is_none_in_every_trial_is_added_up_as_the_samples_are(graph):
    import tensorflow as tf

    def result(loss, y, p):
        hits = tf.cast(y > 1e9, tf.int32)
        return {"count": tf.reduce_sum(hits), "share": tf.reduce_mean(tf.cast(hits, p.dtype)), "each": hits[:, 0]}

    found = []
    x, y = arrays()
    y[2], y[9] = 2e9, 3e9
    for count in (1, 4):
        step = Bench().step(mean, result=result)
        made = in_slices(tf.function(step) if graph else step, count)
        made(x, np.zeros_like(y))
        found.append({name: value.numpy() for name, value in made(x, y).items()})
    assert found[0]["count"] == found[1]["count"] == 6
    assert found[1]["share"] == pytest.approx(found[0]["share"], rel=1e-12)
    assert np.array_equal(found[0]["each"], found[1]["each"])


@pytest.mark.parametrize("graph", [False, True])
def test_a_step_that_decides_by_its_samples_is_refused(graph):
    import tensorflow as tf

    bench = Bench()
    variables = bench.model.trainable_variables

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = mean(y, bench.model(x))
        gradients = tape.gradient(loss, variables)
        if tf.math.is_finite(loss):
            bench.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    with pytest.raises(InputError, match="decides by the samples"):
        in_slices(tf.function(step) if graph else step)(*arrays())


def test_a_step_that_decides_by_its_gradients_is_not():
    import tensorflow as tf

    def make(bench):
        variables = bench.model.trainable_variables

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = mean(y, bench.model(x))
            gradients = tape.gradient(loss, variables)
            if tf.math.is_finite(tf.linalg.global_norm(gradients)):
                bench.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        return step

    one, other = Bench(), Bench()
    whole, parts = make(one), in_slices(make(other))
    x, y = arrays()
    spoiled = np.array(x)
    spoiled[0] = np.nan  # in the first slice only
    for rows in (x, spoiled, x):
        whole(rows, y)
        parts(rows, y)
    assert int(other.optimizer.iterations) == int(one.optimizer.iterations) == 2
    assert difference(one.weights, other.weights) < EXACT


def test_what_is_computed_with_weights_after_their_update_is_refused():
    import tensorflow as tf

    bench = Bench()
    step = bench.step(mean, result=lambda loss, y, p: tf.reduce_mean(bench.model(tf.constant(arrays()[0])) ** 2))
    again = bench.step(mean, result=lambda loss, y, p: tf.reduce_sum(y @ tf.transpose(bench.model.weights[-2])))
    with pytest.raises(InputError, match="computes with them again"):
        in_slices(again)(*arrays())
    in_slices(step)(*arrays())  # of no sample of the batch: as the last slice has it


def test_gradients_that_wait_for_a_loss_of_a_slice_are_refused():
    import tensorflow as tf

    bench = Bench()
    variables = bench.model.trainable_variables

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = mean(y, bench.model(x))
        gradients = [tf.where(loss > 1e9, tf.zeros_like(g), g) for g in tape.gradient(loss, variables)]
        bench.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    with pytest.raises(InputError, match="changes its gradients"):
        in_slices(step)(*arrays())


def test_what_samples_say_only_now_and_then_is_not_assigned_by_a_slice():
    import tensorflow as tf

    bench, count = Bench(), tf.Variable(0.0, dtype=tf.float64, name="outliers")

    def result(loss, y, p):
        count.assign_add(tf.reduce_sum(tf.cast(tf.abs(y) > 1e9, tf.float64)))
        return loss

    with pytest.raises(InputError, match=r"'outliers.*depends on the samples"):
        in_slices(bench.step(mean, result=result))(*arrays())


@pytest.mark.parametrize("graph", [False, True])
def test_parts_of_a_variable_are_assigned_once(graph):
    import tensorflow as tf

    def make(bench):
        bench.table = tf.Variable(tf.zeros((FEATURES, 2), tf.float64))

        def result(loss, y, p):
            bench.table[1:3].assign(bench.table[1:3] + 1.0)
            return loss

        step = bench.step(mean, result=result)
        return tf.function(step) if graph else step

    one, other = Bench(), Bench()
    whole, parts = make(one), in_slices(make(other))
    for _ in range(2):
        whole(*arrays())
        parts(*arrays())
    assert difference([one.table.numpy()], [other.table.numpy()]) == 0


def test_a_comparison_within_a_loop_ends_as_it_does():
    """What is made to come out otherwise must not go on for ever."""
    import tensorflow as tf

    def loss(y, p):
        left, each = tf.ones_like(y), tf.zeros_like(y)
        each, _ = tf.while_loop(
            lambda _, left: tf.reduce_any(left > 0.3),
            lambda each, left: (each + left * (p - y) ** 2, 0.5 * left),
            (each, left),
        )
        return tf.reduce_mean(each)

    one, other = Bench(), Bench()
    one.step(loss)(*arrays())
    in_slices(other.step(loss))(*arrays())
    assert difference(one.weights, other.weights) < EXACT
