"""Arrays written piece by piece: every number once, no piece too large."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from legroom.guard.snapshots import boxes


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(1, 60))
def test_every_number_is_in_one_box(shape, most):
    seen = np.zeros(shape, int)
    for box in boxes(shape, most):
        assert seen[box].size <= most
        seen[box] += 1
    assert (seen == 1).all()
