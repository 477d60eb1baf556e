"""Guarded steps of one's own: what is held back of several updates, and what runs on where nothing can be."""

import functools

import numpy as np
import pytest

import legroom

pytestmark = pytest.mark.tensorflow

ROWS = 48
MODES = pytest.mark.parametrize("mode", ["eager", "graph"])


class Made:
    """A small model; where more than `most` samples come at once, there is no room for them."""

    def __init__(self, optimizer=None, most=None):
        import keras
        import tensorflow as tf

        class Narrow(keras.layers.Layer):
            def call(self, x):
                if most is not None and x.shape[0] is not None and x.shape[0] > most:
                    raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[9]")
                return tf.identity(x)

        keras.utils.set_random_seed(3)
        layers = keras.layers
        self.model = keras.Sequential(
            [keras.Input((6,)), Narrow(), layers.Dense(8, activation="tanh"), layers.Dense(2)]
        )
        self.optimizer = optimizer() if optimizer is not None else keras.optimizers.SGD(0.1, momentum=0.9)

    def computed(self, x, y):
        """The loss, and what each variable has as its gradient."""
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(x, training=True) - y) ** 2)
        variables = self.model.trainable_variables
        return loss, list(zip(tape.gradient(loss, variables), variables, strict=True))

    @property
    def arrays(self):
        return [np.asarray(variable) for variable in (*self.model.variables, *self.optimizer.variables)]


def batch(rows=ROWS):
    import tensorflow as tf

    random = np.random.default_rng(0)
    return tf.constant(random.random((rows, 6)), tf.float32), tf.constant(random.random((rows, 2)), tf.float32)


def trained(make, mode, optimizer=None, *, guard=True, most=None, calls=({},) * 3, **options):
    """The step after some calls, and what became of weights and slots."""
    import tensorflow as tf

    made = Made(optimizer, most)
    step = make(made)
    step = tf.function(step) if mode == "graph" else step
    step = legroom.train_step(step, guard=True, verbose=False, **options) if guard else step
    found = [float(step(*batch(), **named)) for named in calls]
    return step, [*made.arrays, *found]


def same(found, wanted, apart=0.0):
    return all(np.allclose(one, other, rtol=apart, atol=apart) for one, other in zip(found, wanted, strict=True))


# several updates


def adam():
    import keras

    return keras.optimizers.Adam(0.1)


def averaging():
    import keras

    return keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True, ema_overwrite_frequency=2)


def accumulating():
    import keras

    return keras.optimizers.Adam(0.1, gradient_accumulation_steps=2)


def scheduled():
    import keras

    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.7)
    return keras.optimizers.AdamW(rate, weight_decay=0.1)


def twice(made, again=slice(2, None)):
    made.optimizer.build(made.model.trainable_variables)

    def step(x, y):
        loss, pairs = made.computed(x, y)
        made.optimizer.apply_gradients(pairs[:2])
        made.optimizer.apply_gradients(pairs[again])
        return loss

    return step


def overlapping(made):
    return twice(made, slice(1, None))


@MODES
@pytest.mark.parametrize(
    ("optimizer", "apart"),
    [
        (adam, 0.0),
        (averaging, 0.0),
        (accumulating, 0.0),
        (scheduled, 1e-6),
    ],  # TensorFlow rounds it otherwise in a graph
)
@pytest.mark.parametrize("make", [twice, overlapping])
def test_an_optimizer_that_is_applied_twice_does_the_same_under_the_guard(make, optimizer, apart, mode):
    step, found = trained(make, mode, optimizer)
    assert step.run.events == ()
    assert same(found, trained(make, mode, optimizer, guard=False)[1], apart)


def test_an_update_is_known_by_its_optimizer_too():
    import keras

    def either(made):
        made.other = keras.optimizers.SGD(0.5)

        def step(x, y, other=False):
            loss, pairs = made.computed(x, y)
            (made.other if other else made.optimizer).apply_gradients(pairs)
            return loss

        return step

    calls = ({}, {"other": True}, {})
    step, found = trained(either, "eager", calls=calls)
    assert step.run.events == ()
    assert same(found, trained(either, "eager", guard=False, calls=calls)[1])


# what is used again


def assigns_a_weight(made):
    def step(x, y):
        loss, pairs = made.computed(x, y)
        made.optimizer.apply_gradients(pairs)
        made.model.trainable_variables[0].assign(np.full((6, 8), 0.5, "float32"))
        return loss

    return step


def reads_a_weight(made):
    import tensorflow as tf

    def step(x, y):
        loss, pairs = made.computed(x, y)
        made.optimizer.apply_gradients(pairs)
        return loss + tf.reduce_sum(made.model.trainable_variables[0])

    return step


def moves_the_rate(made):
    def step(x, y, when=True):
        loss, pairs = made.computed(x, y)
        made.optimizer.apply_gradients(pairs)
        if when:
            made.optimizer.learning_rate.assign(0.5 * made.optimizer.learning_rate)
        return loss

    return step


def counts(made):
    import tensorflow as tf

    def step(x, y):
        loss, pairs = made.computed(x, y)
        made.optimizer.apply_gradients(pairs)
        return loss * tf.cast(made.optimizer.iterations, tf.float32)

    return step


def twice_with_a_new_gradient(made):
    def step(x, y):
        made.optimizer.apply_gradients(made.computed(x, y)[1])
        loss, pairs = made.computed(x, y)
        made.optimizer.apply_gradients(pairs)
        return loss

    return step


@MODES
@pytest.mark.parametrize("make", [assigns_a_weight, reads_a_weight, moves_the_rate, counts, twice_with_a_new_gradient])
def test_what_is_updated_and_then_used_is_refused_as_such_and_runs_as_without_the_guard(make, mode):
    step, found = trained(make, mode)
    (event,) = step.run.events
    assert event.kind == "not_guarded"
    assert "uses weights again, or variables of the optimizer" in event.message
    assert same(found, trained(make, mode, guard=False)[1])


def test_a_step_that_fails_since_its_update_waits_is_refused_for_that():
    import tensorflow as tf

    def checks(made):
        def step(x, y):
            loss, pairs = made.computed(x, y)
            before = made.model.trainable_variables[0].numpy()
            made.optimizer.apply_gradients(pairs)
            tf.debugging.assert_none_equal(before, made.model.trainable_variables[0])
            return loss

        return step

    (event,) = trained(checks, "eager")[0].run.events
    assert "uses weights again" in event.message


@pytest.mark.parametrize(("mode", "where"), [("eager", ", where it is a tf.function."), ("graph", "each step.")])
def test_the_hint_says_what_copies_are_for(mode, where):
    (event,) = trained(reads_a_weight, mode)[0].run.events
    assert "copies=True" in event.message
    assert event.message.endswith(where)


def test_what_is_asked_of_a_step_is_answered_as_of_now():
    assert trained(reads_a_weight, "eager")[0].guarded is False


# in micro-batches


def in_a_condition(made):
    import tensorflow as tf

    def step(x, y):
        loss, pairs = made.computed(x, y)
        if tf.reduce_all(tf.math.is_finite(pairs[0][0])):  # AutoGraph makes a condition of it
            made.optimizer.apply_gradients(pairs)
        return loss

    return step


@pytest.mark.parametrize(
    ("make", "mode", "why"),
    [
        (moves_the_rate, "eager", "uses weights again"),
        (moves_the_rate, "graph", "uses weights again"),
        (in_a_condition, "graph", "inside a loop, a condition"),
    ],
)
def test_what_begins_in_micro_batches_and_cannot_be_guarded_stays_in_them(make, mode, why):
    step, found = trained(make, mode, most=12, micro_batches=4)
    (event,) = step.run.events
    assert why in event.message
    assert event.message.endswith("It stays in 4 micro-batches.")
    assert same(found, trained(make, mode, guard=False)[1], 1e-5)


def test_what_came_to_micro_batches_stays_in_them_too():
    calls = ({"when": False}, {"when": True}, {"when": False})
    step, found = trained(moves_the_rate, "eager", most=12, calls=calls)
    assert [event.kind for event in step.run.events] == [*("out_of_memory", "changed") * 2, "not_guarded"]
    assert same(found, trained(moves_the_rate, "eager", guard=False, calls=calls)[1], 1e-5)


def test_what_is_tried_out_in_micro_batches_is_known_to_those_that_are_not_guarded():
    step, _ = trained(moves_the_rate, "eager", most=12, micro_batches=4)
    assert step.splits[4].legroom_step.known is step.written.known


# inside a tf.function


def test_a_guard_below_a_tf_function_says_once_that_it_does_nothing(tmp_path):
    import tensorflow as tf

    made = Made()
    guard = functools.partial(legroom.train_step, guard=True, verbose=False, report=tmp_path / "run.jsonl")
    step = tf.function(guard(twice(made)))
    step(*batch())
    step(*batch(24))
    (line,) = (tmp_path / "run.jsonl").read_text().splitlines()
    assert "above @tf.function" in line


def test_a_guarded_step_in_a_guarded_step_is_guarded_by_that():
    import tensorflow as tf

    guard = functools.partial(legroom.train_step, guard=True, verbose=False)
    inner = guard(twice(Made()))
    guard(tf.function(inner))(*batch())
    assert inner.run.events == ()
