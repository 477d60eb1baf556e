"""Which plan a guarded run takes where none surely fits."""

import pytest

from legroom.records.plan import Action, Plan, Planning
from legroom.running.planning import likeliest


def plan(peak, high, slowdown, count=2):
    return Plan((Action("microbatch", (("count", count),)),), peak, peak, high, False, slowdown)


def planning(*plans):
    return Planning("this CPU", 32, 100, Plan((), 200, 200, 220, False, 1.0), plans, None)


@pytest.mark.parametrize(
    ("plans", "wanted"),
    [
        ([plan(90, 120, 1.4), plan(95, 130, 1.2)], 1),  # the quicker of two that are expected to fit
        ([plan(110, 120, 1.1), plan(95, 130, 1.4)], 1),  # not one that is expected to fail
        ([plan(60, 120, 3.0)], None),  # nor a dear one
        ([plan(60, 120, None)], None),
        ([Plan((), 90, 90, 120, False, 1.0)], None),  # nothing is done anyway
        ([], None),
    ],
)
def test_the_quickest_that_is_expected_to_fit_and_is_not_dear(plans, wanted):
    assert likeliest(planning(*plans)) is (None if wanted is None else plans[wanted])
