"""What metrics of a user's own count in slices: sums and the largest of all are the batch's, a count of batches is refused."""

import numpy as np
import pytest
from loop_bench import EXACT, ROWS, Bench, arrays, difference, in_slices, mean, precision

from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow


@pytest.fixture(autouse=True)
def doubles():
    precision("float64")
    yield
    precision("float32")


def metric_of(change, *, plain=False):
    """A metric with one number, made another by `change(old, y, p)`; in a variable of TensorFlow's where it is `plain`."""
    import keras
    import tensorflow as tf

    class Own(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="own")
            self.held = (
                tf.Variable(0.0, dtype=tf.float64) if plain else self.add_weight(name="held", initializer="zeros")
            )

        def update_state(self, y, p):
            change(self.held, tf.convert_to_tensor(y), p)

        def result(self):
            return self.held * 1

    return Own()


def step_with(metric):
    bench = Bench()
    return bench.step(mean, result=lambda _, y, p: metric.update_state(y, p))


def counting():
    import tensorflow as tf

    def cast(value, held):
        return tf.cast(value, held.dtype)

    return {
        "one a batch": lambda held, y, p: held.assign_add(cast(1, held)),
        "one a batch, taken off": lambda held, y, p: held.assign_sub(cast(1, held)),
        "one a batch, written out": lambda held, y, p: held.assign(held + 1),
        "whether any": lambda held, y, p: held.assign_add(cast(tf.reduce_any(y > 0), held)),
        "the largest of each batch": lambda held, y, p: held.assign_add(cast(tf.reduce_max(y), held)),
    }


@pytest.mark.parametrize("plain", [False, True])
def test_what_is_counted_once_a_batch_is_refused(plain):
    for name, change in counting().items():
        metric = metric_of(change, plain=plain)
        with pytest.raises(InputError, match="does not add up"):
            in_slices(step_with(metric))(*arrays())
        assert float(metric.result()) == 0, name


@pytest.mark.parametrize("graph", [False, True])
def test_sums_and_the_largest_of_all_are_the_whole_batchs(graph):
    import tensorflow as tf

    for change in (
        lambda held, y, p: held.assign_add(tf.cast(tf.shape(y)[0], held.dtype)),
        lambda held, y, p: held.assign_add(tf.reduce_sum(tf.cast(y, held.dtype))),
        lambda held, y, p: held.assign(tf.maximum(held, tf.reduce_max(tf.cast(y, held.dtype)))),
        lambda held, y, p: held.assign(tf.minimum(held, tf.reduce_min(tf.cast(y, held.dtype)))),
    ):
        one, other = metric_of(change), metric_of(change)
        whole, parts = step_with(one), step_with(other)
        parts = in_slices(tf.function(parts) if graph else parts)
        for seed in range(2):
            batch = arrays(ROWS, seed=seed)
            whole(*batch)
            parts(*batch)
        assert float(other.result()) == pytest.approx(float(one.result()), rel=1e-12)


def test_metrics_of_keras_own_are_counted_as_ever():
    import keras

    metrics = keras.metrics
    for make in (
        metrics.MeanSquaredError,
        metrics.CategoricalAccuracy,
        lambda: metrics.AUC(num_thresholds=5),
        lambda: metrics.F1Score(threshold=0.5),
        metrics.Precision,
        metrics.R2Score,
        lambda: metrics.OneHotMeanIoU(num_classes=4),
        metrics.RootMeanSquaredError,
    ):
        one, other = make(), make()
        whole, parts = step_with(one), in_slices(step_with(other))
        for seed in range(2):
            x, y = arrays(ROWS, seed=seed)
            y = (y > 0.0) * 1.0
            whole(x, y)
            parts(x, y)
        for mine, its in zip(one.variables, other.variables, strict=True):
            np.testing.assert_allclose(its, mine, rtol=1e-12, err_msg=type(one).__name__)


def averaged(how, graph):
    """A step that weighs its loss by a mean of the batches before, kept in a metric."""
    import keras
    import tensorflow as tf

    bench, baseline = Bench(), keras.metrics.Mean()

    def step(x, y):
        before = baseline.result() if how == "read" else 1.0
        if how == "reset":
            baseline.reset_state()
        with tf.GradientTape() as tape:
            loss = mean(y, bench.model(x, training=True)) * tf.cast(1.0 + before, x.dtype)
        weights = bench.model.trainable_variables
        bench.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        baseline.update_state(y[:, 0])
        after = baseline.result()
        if how == "reset after":
            baseline.reset_state()
        return loss, after

    return bench, tf.function(step) if graph else step


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(("how", "what"), [("read", "reads the metric"), ("reset", "sets the metric")])
def test_a_metric_that_is_read_or_reset_before_its_update_is_refused(how, what, graph):
    with pytest.raises(InputError, match=what):
        in_slices(averaged(how, graph)[1])(*arrays())


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("how", ["plain", "reset after"])
def test_a_metric_that_is_read_and_reset_after_its_update_is_the_whole_batches(how, graph):
    (one, whole), (other, step) = averaged(how, graph), averaged(how, graph)
    parts = in_slices(step)
    for seed in range(3):
        wanted, found = whole(*arrays(seed=seed)), parts(*arrays(seed=seed))
        assert [float(number) for number in found] == pytest.approx([float(number) for number in wanted], rel=1e-6)
    assert difference(one.weights, other.weights) < EXACT


@pytest.mark.parametrize("graph", [False, True])
def test_a_metric_of_predictions_with_updated_weights_is_refused(graph):
    import keras
    import tensorflow as tf

    bench, seen = Bench(), keras.metrics.MeanSquaredError()
    own = bench.step(mean)

    def step(x, y):
        loss = own(x, y)
        seen.update_state(y, bench.model(x))
        return loss

    with pytest.raises(InputError, match="updates weights and computes with them again"):
        in_slices(tf.function(step) if graph else step)(*arrays())


@pytest.mark.parametrize("graph", [False, True])
def test_a_metric_that_gets_a_number_now_and_then_is_refused(graph):
    """The slices before the last find the counter as it was before the update."""
    import keras
    import tensorflow as tf

    bench, seen = Bench(), keras.metrics.Mean()
    own = bench.step(mean)

    def step(x, y):
        loss = own(x, y)
        if bench.optimizer.iterations % 2 == 0:
            seen.update_state(loss)
        return loss

    parts = in_slices(tf.function(step) if graph else step)

    def train():
        for seed in range(2):
            parts(*arrays(seed=seed))

    with pytest.raises(InputError, match=r"gives (a metric|metrics)"):
        train()
