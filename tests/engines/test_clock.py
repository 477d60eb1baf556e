"""When kernels end that run side by side."""

import pytest

from legroom.engines.op.clock import Clock, SharedClock


def endings(clock, *kernels):
    for thread, seconds in enumerate(kernels):
        clock.start(thread, seconds)
    found = []
    while clock:
        thread = clock.end_next()
        found.append((thread, clock.now))
    return found


def test_kernels_that_do_not_mind_each_other_end_when_they_would_alone():
    assert endings(Clock(), 3.0, 1.0, 2.0) == [(1, 1.0), (2, 2.0), (0, 3.0)]


def test_long_kernels_share_the_cores():
    assert endings(SharedClock(2), 1.0, 1.0) == [(0, 2.0), (1, 2.0)]


def test_one_that_is_left_alone_gets_all_cores_again():
    assert endings(SharedClock(2), 1.0, 3.0) == [(0, pytest.approx(2.0)), (1, pytest.approx(4.0))]


def test_a_short_kernel_keeps_its_core_and_slows_a_long_one():
    (short, at), (_, end) = endings(SharedClock(2), 1e-5, 1.0)
    assert (short, at) == (0, pytest.approx(1e-5))
    assert end == pytest.approx(1.0 + 0.5e-5)


def test_a_kernel_that_starts_later_is_counted_from_then():
    clock = SharedClock(4)
    clock.start(0, 1.0)
    assert clock.end_next() == 0
    clock.start(1, 1.0)
    assert clock.end_next() == 1
    assert clock.now == pytest.approx(2.0)
