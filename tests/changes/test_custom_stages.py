"""Switches that no sample decides, turned in trials; and what compares half of its samples, which half of a few may hide."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from loop_bench import EXACT, Bench, arrays, difference, in_slices, mean, precision

from legroom.errors import InputError

pytestmark = pytest.mark.tensorflow


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    precision("float64")
    yield
    precision("float32")


def harder_half(y: Any, p: Any) -> Any:
    import tensorflow as tf

    each = tf.reduce_mean((p - y) ** 2, -1)
    return tf.reduce_mean(tf.sort(each)[tf.shape(each)[0] // 2 :])


def steeper(y: Any, p: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(tf.abs(p - y) ** 3)


def switched(
    kind: str, bench: Bench, term: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """A step that computes `term` later on, and what it is given beside the batch at each call; off at the first."""
    import tensorflow as tf

    phase, word = tf.Variable(0, trainable=False), tf.Variable("easy", trainable=False)
    count = bench.optimizer.iterations

    def loss(y: Any, p: Any, given: Any) -> Any:
        return {
            "a truth": lambda: tf.cond(given, lambda: term(y, p), lambda: mean(y, p)),
            "a word": lambda: tf.cond(tf.equal(word, "hard"), lambda: term(y, p), lambda: mean(y, p)),
            "a phase": lambda: tf.cond(tf.equal(given, 3), lambda: term(y, p), lambda: mean(y, p)),
            "an epoch": lambda: tf.cond(tf.equal(count // 2, 1), lambda: term(y, p), lambda: mean(y, p)),
            "a ramp": lambda: mean(y, p) + tf.cast(given, p.dtype) * term(y, p),
            "a case": lambda: tf.switch_case(
                phase.read_value(),
                [lambda: mean(y, p), lambda: 2 * mean(y, p), lambda: 3 * mean(y, p), lambda: term(y, p)],
            ),
            "a table": lambda: mean(y, p) + tf.gather(tf.constant([0.0, 0.0, 0.0, 1.0], p.dtype), phase) * term(y, p),
        }[kind]()

    def step(x: Any, y: Any, given: Any) -> Any:
        return bench.step(lambda y, p: loss(y, p, given))(x, y)

    def given_at(call: int) -> tuple[Any, ...]:
        given = {
            "a truth": tf.constant(call > 1),
            "a phase": tf.constant(call),
            "a ramp": tf.constant(float(max(call - 1, 0))),
        }
        phase.assign(call)
        word.assign("hard" if call > 1 else "easy")
        return (given.get(kind, tf.constant(0)),)

    return step, given_at


KINDS = ("a word", "a truth", "a phase", "an epoch", "a ramp", "a case", "a table")


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_compares_samples_later_on_is_refused(kind: str) -> None:
    import tensorflow as tf

    bench = Bench()
    step, given_at = switched(kind, bench, harder_half)
    before = bench.weights
    with pytest.raises(InputError):
        in_slices(tf.function(step), 3)(*arrays(24), *given_at(0))
    assert difference(bench.weights, before) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_goes_on_adding_up_agrees(kind: str) -> None:
    import tensorflow as tf

    benches = Bench(), Bench()
    for bench in benches:
        plain, given_at = switched(kind, bench, steeper)
        step = in_slices(tf.function(plain), 3) if bench is benches[1] else tf.function(plain)
        for call in range(4):
            step(*arrays(24), *given_at(call))
    assert difference(benches[0].weights, benches[1].weights) < EXACT


def test_weights_of_classes_that_are_alike_now_may_be_told_apart() -> None:
    """A mean by weights of classes is a plain mean as long as they are ones."""
    import tensorflow as tf

    weights = tf.Variable(np.ones(100), trainable=False)

    def loss(y: Any, p: Any) -> Any:
        each = tf.reduce_mean((p - y) ** 2, -1)
        one = tf.gather(weights, tf.cast(tf.abs(y[:, 0]) * 30, tf.int32) % 100)
        return tf.reduce_sum(one * each) / tf.reduce_sum(one)

    with pytest.raises(InputError):
        in_slices(tf.function(Bench().step(loss)))(*arrays())


def eight_hardest(y: Any, p: Any) -> Any:
    """Raises on fewer samples."""
    import tensorflow as tf

    return tf.reduce_mean(tf.math.top_k(tf.reduce_mean((p - y) ** 2, -1), 8).values)


@pytest.mark.parametrize("inner", [False, True])
def test_what_raises_on_few_samples_is_tried_in_slices_as_large_as_the_real_ones(inner: bool) -> None:
    import tensorflow as tf

    bench = Bench()

    def loss(y: Any, p: Any) -> Any:
        late = bench.optimizer.iterations >= 5
        return tf.cond(late, lambda: eight_hardest(y, p), lambda: mean(y, p))

    step = bench.step(tf.function(loss) if inner else loss)
    with pytest.raises(InputError, match="not what they are now"):
        in_slices(step if inner else tf.function(step), 3)(*arrays(48))


def test_a_loss_that_raises_on_few_samples_later_on_is_refused() -> None:
    import keras
    import tensorflow as tf

    from legroom.changes.microbatch import split

    late = tf.Variable(False)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    model.compile("sgd", lambda y, p: tf.cond(late, lambda: eight_hardest(y, p), lambda: mean(y, p)))
    with pytest.raises(InputError, match="cannot be computed in slices"):
        split(model, 3)
