"""A node for which there is no room waits as long as others run, as TensorFlow's allocator does; then it fails."""

import pytest
from made_up_graphs import Draft, MadeUpKernels

from legroom.engines.bfc import Bfc, OutOfMemory
from legroom.engines.op.executor import Executor
from legroom.engines.op.planned import Planned

KIB = 1024


def limited(draft, limit_bytes, threads=2):
    allocator = Bfc(limit_bytes, growth=False)
    executor = Executor(Planned(draft.graph(), MadeUpKernels()), allocator, threads)
    executor.place()
    executor.step()
    return executor, allocator


def side_by_side(threads_worth):
    draft = Draft()
    for i in range(threads_worth):
        draft.add(f"big{i}", size=KIB, temporaries=(KIB,))
    return draft


def test_two_that_do_not_fit_together_run_one_after_the_other():
    _, allocator = limited(side_by_side(2), 2 * KIB)
    assert allocator.peak_in_use_bytes == 2 * KIB


def test_two_that_fit_together_run_together():
    _, allocator = limited(side_by_side(2), 4 * KIB)
    assert allocator.peak_in_use_bytes == 4 * KIB


def test_one_that_fits_nowhere_fails():
    draft = Draft()
    draft.add("small", size=256)
    draft.add("huge", size=8 * KIB)
    with pytest.raises(OutOfMemory):
        limited(draft, 4 * KIB)


def test_who_asked_is_known_when_it_fails():
    draft = Draft()
    draft.add("small", size=256)
    number, _ = draft.run("huge", (), (8 * KIB,))
    allocator = Bfc(4 * KIB, growth=False)
    executor = Executor(Planned(draft.graph(), MadeUpKernels()), allocator, 1)
    executor.place()
    with pytest.raises(OutOfMemory):
        executor.step()
    assert executor.asking == ("output", number)


def test_a_try_that_failed_leaves_nothing_behind():
    draft = side_by_side(2)
    _, allocator = limited(draft, 3 * KIB)
    assert allocator.in_use_bytes == 0


def test_one_waits_while_the_thread_that_ran_last_has_more_to_do():
    """The waiting node is asked again before the other thread goes on: that is no failure yet."""
    draft = Draft()
    held = draft.add("held", size=2 * KIB)
    draft.add("large", size=7 * KIB)
    draft.add("reader", held, size=KIB)
    executor, _ = limited(draft, 8 * KIB)
    assert len(executor.schedule) == len(draft.nodes)
