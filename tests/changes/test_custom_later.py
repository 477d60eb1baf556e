"""Terms of a loss that weigh nothing at the first call, and something later on: they are tried, too."""

import numpy as np
import pytest
from loop_bench import EXACT, Bench, arrays, difference, in_slices, mean, precision

from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow
LATER = r"are not what they are now"


@pytest.fixture(autouse=True)
def doubles():
    precision("float64")
    yield
    precision("float32")


def rooted(y, p):
    import tensorflow as tf

    return tf.sqrt(mean(y, p))


def step_with(bench, weight, term=rooted):
    """The mean, and a term that weighs as much as it is said to."""
    import tensorflow as tf

    return lambda *given: bench.step(lambda y, p: mean(y, p) + tf.cast(weight(*given[2:]), p.dtype) * term(y, p))(
        *given[:2]
    )


def weights_of(bench):
    """Weights that are 0 now: by the optimizer's count, by variables, and by the step's own counter."""
    import tensorflow as tf

    beta, flag = tf.Variable(0.0, trainable=False), tf.Variable(False)
    bench.beta = beta
    count = bench.optimizer
    return {
        "warm-up": lambda: tf.minimum(1.0, tf.cast(count.iterations, tf.float32) / 4),
        "sigmoid": lambda: tf.sigmoid((tf.cast(count.iterations, tf.float32) - 1000) / 10),
        "condition": lambda: tf.cond(count.iterations > 2, lambda: 1.0, lambda: 0.0),
        "variable": lambda: beta,
        "read without a word": lambda: tf.minimum(beta, 1.0),
        "flag": lambda: tf.where(flag, 1.0, 0.0),
        "attribute": lambda: bench.beta * 2,
    }


@pytest.mark.parametrize("graph", [False, True])
def test_a_term_that_waits_for_a_counter_or_a_variable_is_tried(graph):
    import tensorflow as tf

    for name in weights_of(Bench()):
        bench = Bench()
        before = bench.weights
        step = step_with(bench, weights_of(bench)[name])
        with pytest.raises(InputError, match=LATER):
            in_slices(tf.function(step) if graph else step)(*arrays())
        assert difference(bench.weights, before) == 0, name
        assert (int(bench.optimizer.iterations), float(bench.beta)) == (0, 0.0), name


def test_a_term_that_waits_for_an_argument_is_tried():
    import tensorflow as tf

    for beta in (tf.constant(0.0), np.float32(0), 0.0, tf.constant(0), tf.constant(False)):
        with pytest.raises(InputError, match=LATER):
            in_slices(tf.function(step_with(Bench(), lambda given: given)))(*arrays(), beta)


def test_a_term_of_a_model_with_its_own_step_is_tried():
    import keras
    import tensorflow as tf

    from legroom.changes.microbatch import split

    class Warming(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(4)
            self.beta = self.add_weight(name="beta", initializer="zeros", trainable=False)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                p = self.dense(x)
                loss = mean(y, p) + tf.minimum(self.beta, 1.0) * rooted(y, p)
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            self.beta.assign_add(0.25)
            return {"loss": loss}

    model = Warming()
    model.compile("sgd")
    split(model, 2)
    with pytest.raises(InputError, match=LATER):
        model.fit(np.ones((8, 3)), np.ones((8, 4)), batch_size=8, verbose=0)


@pytest.mark.parametrize("graph", [False, True])
def test_a_term_that_adds_up_may_wait(graph):
    """Also beside what is assigned, a rate that falls, and a target network."""
    import tensorflow as tf

    def made():
        bench, target = Bench(), Bench()
        step_count, rate = tf.Variable(0), tf.Variable(1.0, dtype=tf.float64)

        def penalty(_, p):
            return tf.reduce_mean(tf.abs(p)) + tf.reduce_mean(rate) * tf.reduce_mean(p**4)

        step = step_with(bench, lambda: tf.minimum(1.0, tf.cast(step_count, tf.float32) / 4), penalty)

        def whole(x, y):
            loss = step(x, y)
            step_count.assign_add(1)
            rate.assign(rate * 0.5)
            for mine, its in zip(target.model.variables, bench.model.variables, strict=True):
                mine.assign(0.9 * mine + 0.1 * its)
            return loss, rate

        return bench, target, step_count, tf.function(whole) if graph else whole

    one, other = made(), made()
    parts = in_slices(other[-1])
    for seed in range(4):
        batch = arrays(seed=seed)
        wanted, found = one[-1](*batch), parts(*batch)
        assert float(found[0]) == pytest.approx(float(wanted[0]), rel=1e-12)
        assert float(found[1]) == float(wanted[1])
    assert difference(one[0].weights, other[0].weights) < EXACT
    assert int(other[2]) == 4


@pytest.mark.parametrize("graph", [False, True])
def test_a_counter_that_is_used_after_it_was_moved_is_put_back(graph):
    """What `assign_add` gives is another object that stands for the same variable."""
    import tensorflow as tf

    def made():
        bench, counter, average = Bench(), tf.Variable(0.0, trainable=False), tf.Variable(0.0, trainable=False)
        own = bench.step(mean)

        def step(x, y):
            count = counter.assign_add(1.0)
            loss = own(x, y)
            average.assign(average * 0.5 + tf.minimum(0.9, (1.0 + count) / (10.0 + count)))
            return loss, count

        return counter, average, tf.function(step) if graph else step

    one, other = made(), made()
    parts = in_slices(other[-1])
    for seed in range(3):
        assert float(parts(*arrays(seed=seed))[1]) == float(one[-1](*arrays(seed=seed))[1]) == seed + 1
    assert [float(variable) for variable in other[:2]] == pytest.approx([float(variable) for variable in one[:2]])


def dependent(p):
    """Compares its samples."""
    import tensorflow as tf

    return tf.reduce_sum(tf.math.reduce_variance(p, 0))


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("start", [[0.0], [1.0, 0.0], [[1.0, 0.0], [0.0, 0.0]]])
def test_a_weight_in_an_array_that_is_nothing_at_first_is_tried(start, graph):
    import tensorflow as tf

    bench, weights = Bench(), tf.Variable(np.array(start), trainable=False)

    def loss(y, p):
        return mean(y, p) + tf.reshape(weights, [-1])[-1] * dependent(p)

    step = bench.step(loss)
    with pytest.raises(InputError, match="are not what they are now"):
        in_slices(tf.function(step) if graph else step)(*arrays())
    assert np.array_equal(weights.numpy(), np.array(start))


@pytest.mark.parametrize("graph", [False, True])
def test_a_weight_in_an_array_that_the_step_is_given_is_tried(graph):
    import tensorflow as tf

    bench = Bench()

    def step(x, y, weights):
        return bench.step(lambda y, p: weights[0] * mean(y, p) + weights[1] * dependent(p))(x, y)

    with pytest.raises(InputError, match="are not what they are now"):
        in_slices(tf.function(step) if graph else step)(*arrays(), tf.constant([1.0, 0.0], tf.float64))


@pytest.mark.parametrize("graph", [False, True])
def test_a_number_that_a_layer_of_ones_own_keeps_is_tried(graph):
    import keras
    import tensorflow as tf

    class Decorrelating(keras.layers.Layer):
        def build(self, shape):
            self.strength = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, z):
            self.add_loss(self.strength * dependent(z))
            return z

    bench = Bench(Decorrelating)
    step = bench.step(lambda y, p: mean(y, p) + tf.add_n(bench.model.losses))
    with pytest.raises(InputError, match="are not what they are now"):
        in_slices(tf.function(step) if graph else step)(*arrays())


@pytest.mark.parametrize("graph", [False, True])
def test_a_term_between_two_counts_is_tried(graph):
    import tensorflow as tf

    bench = Bench()

    def loss(y, p):
        count = tf.cast(bench.optimizer.iterations, tf.float64)
        if count >= 3 and count < 30:
            return mean(y, p) + dependent(p)
        return mean(y, p)

    step = bench.step(loss)
    with pytest.raises(InputError, match="are not what they are now"):
        in_slices(tf.function(step) if graph else step)(*arrays())


@pytest.mark.parametrize(
    ("start", "weighs"),
    [
        (1.0, lambda v, tf: tf.where(v < 0.02, 1.0, 0.0)),
        (0.0, lambda v, tf: tf.where(v > 500.0, 1.0, 0.0)),
        (0.0, lambda v, tf: tf.nn.relu(-v)),
        (1.0, lambda v, tf: tf.where((v < 0.02) & (v > 0.005), 1.0, 0.0)),
    ],
    ids=["below", "above", "negative", "between"],
)
def test_a_number_beyond_what_it_is_compared_with_is_tried(start, weighs):
    import tensorflow as tf

    bench, number = Bench(), tf.Variable(start, trainable=False, dtype="float64")
    step = bench.step(lambda y, p: mean(y, p) + tf.cast(weighs(number, tf), tf.float64) * dependent(p))
    with pytest.raises(InputError, match="are not what they are now"):
        in_slices(tf.function(step))(*arrays())
    assert float(number) == start


def test_a_term_that_waits_for_a_lower_learning_rate_is_tried():
    import tensorflow as tf

    bench = Bench()

    def loss(y, p):
        rate = tf.cast(bench.optimizer.learning_rate, tf.float64)
        return mean(y, p) + tf.where(rate < 0.002, dependent(p), tf.constant(0.0, tf.float64))

    with pytest.raises(InputError, match="are not what they are now"):
        in_slices(tf.function(bench.step(loss)))(*arrays())
    assert float(bench.optimizer.learning_rate) == pytest.approx(0.01)


@pytest.mark.parametrize("graph", [False, True])
def test_a_word_in_a_variable_is_no_number(graph):
    import tensorflow as tf

    one, other, phase = Bench(), Bench(), tf.Variable("warm", trainable=False)

    def stepped(bench):
        one, two = tf.constant(1.0, tf.float64), tf.constant(2.0, tf.float64)
        step = bench.step(lambda y, p: mean(y, p) * tf.where(tf.equal(phase, "warm"), one, two))
        return tf.function(step) if graph else step

    whole, parts = stepped(one), in_slices(stepped(other))
    whole(*arrays())
    parts(*arrays())
    assert difference(one.weights, other.weights) < EXACT
