"""The order of an epoch: a permutation, uniform, other in each epoch, the same for the same seed, asked in any pieces."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from legroom.data import order
from legroom.data.order import Order

LARGE = order.SORTED_UP_TO + 1000


@given(length=st.integers(1, 3000), seed=st.integers(0, 2**70), epoch=st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_every_sample_stands_at_one_place(length, seed, epoch):
    found = Order(length, seed, True).indices(epoch, 0, length)
    assert np.array_equal(np.sort(found), np.arange(length))


@pytest.mark.parametrize("length", [LARGE, LARGE + 7001, 2**19])
def test_every_sample_of_large_data_stands_at_one_place(length):
    found = Order(length, 3, True).indices(1, 0, length)
    assert np.array_equal(np.sort(found), np.arange(length))


@given(cuts=st.lists(st.integers(0, LARGE), min_size=1, max_size=6), epoch=st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_pieces_are_parts_of_the_whole(cuts, epoch):
    for length in (2000, LARGE):
        places = sorted({0, length, *(cut % length for cut in cuts)})
        asked = Order(length, 5, True)
        pieces = [asked.indices(epoch, start, stop) for start, stop in itertools.pairwise(places)]
        assert np.array_equal(np.concatenate(pieces), Order(length, 5, True).indices(epoch, 0, length))


def test_epochs_and_seeds_differ_and_runs_do_not():
    for length in (1000, LARGE):
        first = Order(length, 0, True).indices(0, 0, 500)
        assert np.array_equal(first, Order(length, 0, True).indices(0, 0, 500))
        assert not np.array_equal(first, Order(length, 0, True).indices(1, 0, 500))
        assert not np.array_equal(first, Order(length, 1, True).indices(0, 0, 500))


def test_places_of_a_sample_are_uniform():
    """Chi-square over where each of 20 samples stands in 4,000 epochs, and over pairs of neighbours."""
    epochs, length = 4000, 20
    made = Order(length, 7, True)
    places = np.array([made.indices(epoch, 0, length) for epoch in range(epochs)])
    counts = np.stack([np.bincount(column, minlength=length) for column in places.T])
    assert stats.chisquare(counts.ravel()).pvalue > 0.001
    steps = np.bincount((places[:, 1:] - places[:, :-1]).ravel() % length, minlength=length)[1:]
    assert stats.chisquare(steps).pvalue > 0.001


def test_large_orders_are_uniform():
    """Chi-square of blocks of places against blocks of samples, over three epochs of the Feistel network."""
    made = Order(LARGE, 11, True)
    counts = np.zeros((32, 32))
    for epoch in range(3):
        samples = made.indices(epoch, 0, LARGE)
        np.add.at(counts, (np.arange(LARGE) * 32 // LARGE, samples * 32 // LARGE), 1)
    assert stats.chi2_contingency(counts).pvalue > 0.001


def test_the_order_as_it_is():
    assert Order(10, 0, False).indices(3, 2, 99).tolist() == [2, 3, 4, 5, 6, 7, 8, 9]


def test_a_large_order_holds_little():
    assert Order(10**9, 0, True).held_bytes < 2**20
    assert len(Order(10**9, 0, True).indices(0, 10**9 - 10, 10**9)) == 10
