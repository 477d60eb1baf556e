"""The numbers that a function compares what it is given with."""

from typing import Any

import numpy as np
import pytest

from legroom.changes.compared import compared_by, marks_around

pytestmark = pytest.mark.tensorflow
ROWS = np.ones((6, 2), "float32")


def in_a_loop(x: Any) -> Any:
    import tensorflow as tf

    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.where(y < 41.0, y, 0.0)), (0, x))[1]


def with_a_tensor() -> Any:
    import tensorflow as tf

    held = tf.constant(23.0)
    return lambda x: tf.cast(x == held, "float32")


def found(function: Any) -> tuple[float, ...]:
    return compared_by(function, ROWS)


def test_a_number_that_something_is_compared_with_is_found() -> None:
    assert 3.0 in found(lambda x: x != 3.0)


def test_also_behind_a_cast() -> None:
    import tensorflow as tf

    assert 50256.0 in found(lambda x: tf.cast(x, "int32") == tf.cast(tf.constant(50256, "int64"), "int32"))


def test_and_in_the_body_of_a_loop() -> None:
    assert 41.0 in found(in_a_loop)


def test_and_held_as_a_tensor() -> None:
    assert 23.0 in found(with_a_tensor())


def test_numbers_that_nothing_is_compared_with_are_none() -> None:
    assert found(lambda x: 5.0 * x + 7.0) == ()


def test_what_cannot_be_traced_has_none() -> None:
    assert found(lambda x: float(x.numpy().sum())) == ()


def test_marks_lie_on_both_sides() -> None:
    assert marks_around((-1000.0,)) == (-1000.0, -1100.0, -900.0, -10000.0)


def test_and_between_a_share_and_the_ends_of_what_it_can_be() -> None:
    assert {0.85, 0.95} <= {round(mark, 9) for mark in marks_around((0.9,))}
