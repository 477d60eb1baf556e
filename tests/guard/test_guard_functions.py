"""Guarded training steps of one's own. Memory "runs out" here where a layer says so: real errors are in test_guard_training."""

import numpy as np
import pytest

import legroom
from legroom.errors import LegroomError

pytestmark = pytest.mark.tensorflow


NO_ROOM = 2**25  # times as many bytes, which nobody has


def narrow(most):
    """A layer that asks for more than there is where it gets more than so many samples."""
    import keras
    import tensorflow as tf

    class Narrow(keras.layers.Layer):
        def call(self, x):
            if tf.executing_eagerly():  # at once: TensorFlow itself waits ten seconds
                if x.shape[0] > most:
                    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[9]")
                return tf.identity(x)
            side = tf.where(tf.shape(x)[0] > most, NO_ROOM, 1)
            asked = tf.raw_ops.Empty(shape=[side, side], dtype=tf.uint8, init=False)
            with tf.control_dependencies([asked]):
                return tf.identity(x)

    return Narrow()


def trained(mode="graph", most=None, steps=4, make=None, **options):
    """The weights, slots and numbers after some steps of a loop; guarded where `most` samples find room."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(3)
    layers, room = keras.layers, narrow(99 if most is None else most)
    model = keras.Sequential([keras.Input((6,)), room, layers.Dense(8, activation="tanh"), layers.Dense(2)])
    optimizer, seen = keras.optimizers.SGD(0.1, momentum=0.9), keras.metrics.Mean()
    step = (make or plain_step)(model, optimizer, seen)
    if mode != "eager":
        step = tf.function(step)
    guarded = legroom.train_step(step, guard=True, verbose=False, **options) if most is not None else step
    random = np.random.default_rng(0)
    losses = []
    for _ in range(steps):
        x, y = random.random((48, 6)).astype("float32"), random.random((48, 2)).astype("float32")
        losses.append(float(guarded(x, y)))
    variables = [*model.variables, *optimizer.variables, *seen.variables]
    return [np.asarray(v) for v in variables], losses, guarded


def plain_step(model, optimizer, seen):
    import tensorflow as tf

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 0.5)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        seen.update_state(loss)
        return loss

    return step


def two_optimizers(model, optimizer, seen):
    import keras
    import tensorflow as tf

    other = keras.optimizers.Adam(0.01)
    model.other = other

    def step(x, y):
        first, last = model.layers[-2].trainable_variables, model.layers[-1].trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, [*first, *last])
        optimizer.apply_gradients(zip(gradients[:2], first, strict=True))
        other.apply_gradients(zip(gradients[2:], last, strict=True))
        seen.update_state(loss)
        return loss

    return step


def uses_weights_again(model, optimizer, seen):
    import tensorflow as tf

    plain = plain_step(model, optimizer, seen)

    def step(x, y):
        loss = plain(x, y)
        return loss + 0.0 * tf.reduce_sum(model.trainable_variables[0])

    return step


def by_hand(model, optimizer, seen):
    import tensorflow as tf

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        for variable, gradient in zip(
            model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
        ):
            variable.assign_sub(0.1 * gradient)
        return loss

    return step


def in_a_condition(model, optimizer, seen):
    import tensorflow as tf

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        if loss > 0.0:  # AutoGraph makes a condition of it
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def twice(model, optimizer, seen):
    plain = plain_step(model, optimizer, seen)

    def step(x, y):
        return plain(x, y) + plain(x, y)

    return step


def assert_same(found, wanted):
    for mine, other in zip(found[0], wanted[0], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5)


@pytest.mark.parametrize("make", [plain_step, two_optimizers, by_hand])
def test_a_step_without_room_is_taken_again_in_slices(make):
    found = trained("eager", most=12, make=make)
    assert_same(found, trained("eager", make=make))
    assert found[2].run.way.micro_batches == 4
    assert [event.kind for event in found[2].run.events] == ["out_of_memory", "changed"] * 2


@pytest.mark.parametrize(
    "make",
    [two_optimizers, *(pytest.param(make, marks=pytest.mark.slow) for make in (plain_step, by_hand))],
)
def test_as_a_graph_too(make):
    found = trained("graph", most=24, steps=2, make=make)
    assert_same(found, trained("graph", steps=2, make=make))
    assert found[2].run.way.micro_batches == 2


@pytest.mark.parametrize(("mode", "apart"), [("graph", 1e-6), ("eager", 0.0)])  # TensorFlow optimises one graph, or two
def test_with_room_it_is_the_same(mode, apart):
    found, wanted = trained(mode, most=99), trained(mode)
    assert found[1] == pytest.approx(wanted[1], rel=apart, abs=0)
    assert all(np.allclose(a, b, rtol=apart, atol=apart) for a, b in zip(found[0], wanted[0], strict=True))


@pytest.mark.parametrize("mode", ["eager", pytest.param("graph", marks=pytest.mark.slow)])
def test_where_nothing_is_left_it_says_why(mode):
    with pytest.raises(LegroomError, match="nothing is left to") as refused:
        trained(mode, most=0, steps=1)
    assert (
        "would save memory if it were recomputed" in refused.value.hint
    )  # two small layers: what is brought back is as much


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (uses_weights_again, "uses weights again"),
        (in_a_condition, "inside a loop, a condition"),
        (twice, "uses weights again"),
    ],
)
def test_a_step_whose_update_cannot_be_held_back_is_not_guarded_and_says_so(make, why):
    found = trained(most=99, make=make)
    (event,) = found[2].run.events
    assert event.kind == "not_guarded"
    assert why in event.message
    assert_same(found, trained(make=make))


def test_with_copies_it_is():
    found = trained(most=99, make=uses_weights_again, copies=True)
    assert found[2].run.events == ()
    assert_same(found, trained(make=uses_weights_again))


def test_a_mistake_in_the_step_is_raised_as_it_is_and_leaves_nothing_behind():
    import tensorflow as tf

    count = tf.Variable(0)

    @legroom.train_step(guard=True, verbose=False)
    @tf.function
    def step(x):
        count.assign_add(1)
        tf.debugging.assert_less(x, 5.0)
        return tf.reduce_sum(x)

    assert float(step(tf.constant([1.0]))) == 1.0
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.constant([9.0]))
    assert int(count) == 1


def test_other_arguments_flags_and_shapes_are_told_apart():
    import tensorflow as tf

    total = tf.Variable(0.0)

    @legroom.train_step(guard=True, verbose=False)
    @tf.function
    def step(x, twice=False, *, scale=1.0):
        value = tf.reduce_sum(x) * scale * (2.0 if twice else 1.0)
        total.assign_add(value)
        return value

    assert float(step(np.ones(3, "float32"))) == 3.0
    assert float(step(np.ones(3, "float32"), twice=True)) == 6.0
    assert float(step(tf.ones((2, 2)), True, scale=0.5)) == 4.0
    assert float(step(np.ones(3, "float32"))) == 3.0
    assert float(total) == 16.0


def test_the_record_is_written_line_by_line(tmp_path):
    trained("eager", most=24, report=tmp_path / "run.jsonl")
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == 2


def test_copies_want_a_graph():
    with pytest.raises(LegroomError, match=r"tf\.function"):
        legroom.train_step(lambda x: x, guard=True, copies=True)


def test_a_loss_scale_that_moves_is_seen_as_without_the_guard():
    import keras
    import tensorflow as tf

    def found(wrap):
        keras.utils.clear_session()  # names are counted from the beginning
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        inner = keras.optimizers.SGD(0.1, momentum=0.5)
        optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0, dynamic_growth_steps=2)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
                scaled = optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
        step = wrap(tf.function(step))
        losses = [float(step(x, x[:, :1])) for _ in range(6)]
        return losses, float(optimizer.dynamic_scale), [slot.path for slot in optimizer.variables]

    losses, scale, paths = found(lambda step: step)
    guarded = found(legroom.train_step(guard=True, verbose=False))
    assert guarded[0] == pytest.approx(losses, rel=1e-5)
    assert guarded[1:] == (scale, paths)
