"""What steps return beside losses, and what a user is told of a step that fails or cannot be tried."""

import numpy as np
import pytest
from loop_bench import CLASSES, EXACT, FEATURES, ROWS, Bench, arrays, difference, in_slices, mean, precision

import legroom
from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow


@pytest.fixture(autouse=True)
def doubles():
    precision("float64")
    yield
    precision("float32")


def returning(result, loss=mean):
    return Bench().step(loss, result=result)


@pytest.mark.parametrize("graph", [False, True])
def test_sizes_of_the_batch_as_numbers_of_pythons_and_numpys(graph):
    import tensorflow as tf

    for number in (
        lambda loss, y, p: y.shape[0],
        lambda loss, y, p: tf.size(y),
        lambda loss, y, p: 1.5 * y.shape[0],
        lambda *_: np.float32(2),
    ):
        step, other = returning(number), returning(number)
        whole = (tf.function(step) if graph else step)(*arrays())
        parts = in_slices(tf.function(other) if graph else other)(*arrays())
        assert type(parts) is type(whole)
        assert float(parts) == float(whole)
        assert not graph or parts.dtype == whole.dtype


def test_a_size_that_the_graph_does_not_know_is_none():
    import tensorflow as tf

    spec = [tf.TensorSpec((None, FEATURES), tf.float64), tf.TensorSpec((None, CLASSES), tf.float64)]
    assert in_slices(tf.function(returning(lambda loss, y, p: y.shape[0]), input_signature=spec))(*arrays()) is None


def test_a_value_whose_shape_the_graph_does_not_know_is_refused_with_the_reason():
    import tensorflow as tf

    def counts(_, y, p):
        return tf.math.bincount(tf.cast(y[:, 0] > 0, tf.int32), minlength=2, maxlength=2)

    with pytest.raises(InputError, match="shape is not known before it is computed"):
        in_slices(tf.function(returning(counts)))(*arrays())
    given = in_slices(tf.function(returning(lambda *values: tf.ensure_shape(counts(*values), [2]))))(*arrays())
    assert int(tf.reduce_sum(given)) == ROWS


def test_the_users_own_mistake_is_raised_as_it_is():
    def step(x, y):
        return not_defined  # noqa: F821

    with pytest.raises(NameError, match="not_defined"):
        in_slices(step)(*arrays())
    with pytest.raises(TypeError, match="missing 1 required"):
        in_slices(lambda x, y, z: 0)(*arrays())


def test_another_error_is_named_with_its_line_and_cause():
    with pytest.raises(InputError, match=r"ZeroDivisionError.*test_custom_returned\.py:\d+") as refused:
        in_slices(lambda x, y: 1 // 0)(*arrays())
    assert isinstance(refused.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("graph", [False, True])
def test_what_is_mapped_over_samples_and_jacobians_by_data_are_tried(graph):
    import tensorflow as tf

    def squares(y, p):
        return mean(y, p) + tf.reduce_mean(tf.vectorized_map(lambda row: tf.reduce_sum(row) ** 2, p))

    def steep(bench):
        def step(x, y):
            x = tf.convert_to_tensor(x)
            with tf.GradientTape() as tape:
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    p = bench.model(x)
                loss = mean(y, p) + tf.reduce_mean(inner.batch_jacobian(p, x) ** 2)
            variables = bench.model.trainable_variables
            bench.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        return step

    for make in (lambda bench: bench.step(squares), steep):
        one, other = Bench(), Bench()
        whole, parts = make(one), make(other)
        parts = in_slices(tf.function(parts) if graph else parts)
        assert float(parts(*arrays())) == pytest.approx(float(whole(*arrays())), rel=1e-12)
        assert difference(one.weights, other.weights) < EXACT


def test_jacobians_of_weights_are_refused_with_the_reason():
    import tensorflow as tf

    bench = Bench()

    def step(x, y):
        with tf.GradientTape() as tape:
            each = tf.reduce_mean((bench.model(x) - y) ** 2, 1)
        variables = bench.model.trainable_variables
        gradients = [tf.reduce_mean(one, 0) for one in tape.jacobian(each, variables)]
        bench.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return each

    with pytest.raises(InputError, match=r"tape\.jacobian"):
        in_slices(step)(*arrays())


def test_a_number_of_numpys_is_a_number_of_micro_batches():
    step = legroom.train_step(Bench().step(mean), micro_batches=np.int64(3))
    step(*arrays())
    assert step.legroom_step.count == 3
    with pytest.raises(InputError, match="cannot be cut into"):
        legroom.train_step(Bench().step(mean), micro_batches=np.float64(3))


@pytest.mark.parametrize("graph", [False, True])
def test_slots_that_the_first_call_builds_are_there_when_it_is_tried(graph):
    """A norm of the optimizer's own variables: until it has been built there are none."""
    import tensorflow as tf

    def made():
        bench = Bench()

        def norm(loss, y, p):
            return loss, tf.add_n(
                [tf.reduce_sum(tf.cast(slot, tf.float64) ** 2) for slot in bench.optimizer.variables[2:]]
            )

        step = bench.step(mean, result=norm)
        return bench, tf.function(step) if graph else step

    (one, whole), (other, step) = made(), made()
    parts = in_slices(step)
    for seed in range(2):
        wanted, found = whole(*arrays(seed=seed)), parts(*arrays(seed=seed))
        assert [float(value) for value in found] == pytest.approx([float(value) for value in wanted], rel=1e-10)
    assert difference(one.weights, other.weights) < EXACT
