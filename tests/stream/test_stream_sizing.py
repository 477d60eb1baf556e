"""How much is read ahead: never more than the budget, and an answer where nothing fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.data.sizing import GROUP_BYTES, Need, sizes_for
from legroom.errors import InputError
from legroom.units import GIB, MIB

NEEDS = st.builds(Need, st.integers(1, 10**8), st.integers(1, 4096), st.integers(0, 10**8), st.integers(0, 10**9))


@given(NEEDS, st.integers(1, 64 * GIB), st.integers(1, 64), st.sampled_from([0, GROUP_BYTES]))
def test_it_stays_within_the_budget_or_says_why_not(need, budget, threads, group):
    try:
        sizes = sizes_for(need, budget, threads, group)
    except InputError:
        return
    assert sizes.held_bytes <= budget
    assert sizes.threads >= 1
    assert sizes.ahead >= 0
    assert sizes.group == 1 or group


@given(NEEDS, st.integers(1, 8 * GIB), st.integers(0, 8 * GIB))
def test_a_larger_budget_never_refuses_what_a_smaller_takes(need, budget, more):
    try:
        sizes_for(need, budget, 2)
    except InputError:
        return
    sizes_for(need, budget + more, 2)


def test_small_batches_are_read_in_groups():
    assert sizes_for(Need(100, 32), 256 * MIB, 2).group == 16
    assert sizes_for(Need(MIB, 32), GIB, 2).group == 1


def test_the_largest_batch_is_named():
    with pytest.raises(InputError, match="A batch of 1000") as caught:
        sizes_for(Need(MIB, 1000), 512 * MIB, 2)
    assert "batch_size=250" in caught.value.hint


def test_a_sample_larger_than_the_budget():
    with pytest.raises(InputError, match="One sample takes"):
        sizes_for(Need(2 * MIB, 1), MIB, 2)
