"""The largest batches of a Planning, on a made-up card."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from legroom.front.largest import Largest
from legroom.records import Estimate
from legroom.records.plan import Action, Plan, Planning

SLICED = (Action("microbatch", (("count", 4),)),)
LIMIT = 1000


def made_up(batch, peak):
    return Estimate(
        engine="op", engine_version="", framework="jax", framework_version="", execution="graph", gpu="", batch=batch,
        peak_bytes=peak, low_bytes=peak, high_bytes=peak, program_bytes=peak, resident_bytes=0, usable_bytes=LIMIT,
        breakdown={}, layers=(),
    )  # fmt: skip


class MadeUp:
    """Ten bytes for each example, or for every fourth with the actions done."""

    def __init__(self, *, is_elsewhere=False):
        self.actions, self.changes, self.others = (), [], []
        self.source = SimpleNamespace(is_elsewhere=is_elsewhere)

    def beside(self):
        self.others.append(MadeUp())
        return self.others[-1]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.actions = None

    def change(self, actions):
        self.actions = actions
        self.changes.append(actions)
        return "exact", ()

    def at(self, batch):
        return made_up(batch, 10 * batch // (4 if self.actions else 1))


def with_largest_batches(found, estimator, known, say):
    largest = Largest(estimator, say)
    largest.start(known[()])
    return largest.fill_in(found, known)


def planning(chosen, plans):
    plain = Plan((), 2000, 2000, 2000, False, 1.0)
    return Planning("", 200, LIMIT, plain, plans, chosen)


PLANNED = Plan(SLICED, 500, 500, 500, True, 1.0)
KNOWN = {(): made_up(200, 2000), SLICED: made_up(200, 500)}


def test_as_it_is_and_with_the_plan():
    estimator, said = MadeUp(), []
    found = with_largest_batches(planning(0, (PLANNED,)), estimator, KNOWN, said.append)
    assert 97 <= found.max_batch <= 100
    assert 388 <= found.max_batch_planned <= 400
    assert estimator.changes == [SLICED, ()]  # put back
    assert said == ["looking for the largest batch with the plan", "looking for the largest batch as it is"]


def test_a_step_of_another_process_is_asked_meanwhile():
    estimator = MadeUp(is_elsewhere=True)
    found = with_largest_batches(planning(0, (PLANNED,)), estimator, KNOWN, print)
    assert (97 <= found.max_batch <= 100, 388 <= found.max_batch_planned <= 400) == (True, True)
    assert len(estimator.others) == 1


def test_what_goes_wrong_meanwhile_is_raised_where_it_is_waited_for(monkeypatch):
    monkeypatch.setattr(MadeUp, "beside", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        with_largest_batches(planning(0, (PLANNED,)), MadeUp(is_elsewhere=True), KNOWN, print)


def test_without_a_plan_that_fits_there_is_no_second_one():
    found = with_largest_batches(planning(None, (PLANNED,)), MadeUp(), KNOWN, print)
    assert found.max_batch is not None
    assert found.max_batch_planned is None


def test_where_it_fits_as_it_is_both_are_the_same():
    fitting = Plan((), 500, 500, 500, True, 1.0)
    found = with_largest_batches(planning(0, (fitting,)), MadeUp(), {(): made_up(50, 500)}, print)
    assert found.max_batch == found.max_batch_planned >= 97


def test_a_step_without_a_batch_size_has_none():
    found = with_largest_batches(planning(0, (PLANNED,)), MadeUp(), {(): replace(KNOWN[()], batch=None)}, print)
    assert found.max_batch is None
