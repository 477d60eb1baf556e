"""Batches recognised by what they hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.running.order import print_of


@given(st.integers(2, 200), st.integers(1, 50))
def test_the_same_batch_has_the_same_print(rows, columns):
    batch = np.random.default_rng(rows).random((rows, columns))
    assert print_of((batch, {"y": batch[:, 0]})) == print_of((batch.copy(), {"y": batch[:, 0].copy()}))


@given(st.integers(2, 200), st.integers(1, 50))
def test_rows_in_another_order_are_another_batch(rows, columns):
    batch = np.random.default_rng(rows).random((rows, columns))
    assert print_of(batch) != print_of(batch[::-1])


def test_the_order_of_batches_matters():
    first, second = np.zeros(3), np.ones(3)
    assert print_of(second, print_of(first)) != print_of(first, print_of(second))


@pytest.mark.parametrize("data", [None, (), np.array("text"), np.array(["a", "bc"], object), [np.float32(3), None]])
def test_anything_has_one(data):
    assert isinstance(print_of(data), int)
