"""The peak, its parts, and the curve that is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_programs import make_program, programs

from legroom.memory.liveness import held_bytes
from legroom.memory.timeline import UNOWNED, find_peak, thin_curve
from legroom.records.program import Buffer


@given(programs)
def test_parts_sum_to_the_peak(program):
    peak = find_peak(program)
    assert peak.held_bytes == max(held_bytes(program))
    assert sum(peak.by_category.values()) == peak.held_bytes
    assert sum(peak.by_layer.values()) == peak.held_bytes
    assert peak.held_bytes + peak.gap_bytes == program.total_bytes
    assert peak.gap_bytes >= 0


@given(programs)
def test_peak_is_the_first_of_the_highest_moments(program):
    curve = held_bytes(program)
    moment = find_peak(program).moment
    assert all(held < curve[moment] for held in curve[:moment])


def test_buffers_without_a_layer_are_other():
    peak = find_peak(
        make_program([Buffer("a", 0, 0, 3, 0, 1, "workspace"), Buffer("b", 0, 3, 4, 1, 1, "inputs", "dense")])
    )
    assert peak.moment == 1
    assert peak.by_layer == {UNOWNED: 3, "dense": 4}
    assert peak.by_category["workspace"] == 3


def test_a_program_without_a_schedule():
    peak = find_peak(make_program([], moments=0))
    assert (peak.moment, peak.held_bytes, peak.gap_bytes) == (0, 0, 24)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=400), st.integers(3, 40))
def test_a_thinned_curve_keeps_its_ends_its_order_and_its_maximum(curve, points):
    program = make_program([], moments=len(curve))
    thin = thin_curve(program, curve, points)
    moments = [point.moment for point in thin]
    assert len(thin) <= max(points, 3)
    assert moments == sorted(set(moments))
    assert (moments[0], moments[-1]) == (0, len(curve) - 1)
    assert max(point.held_bytes for point in thin) == max(curve)
    assert all(point.held_bytes == curve[point.moment] and point.instruction == f"i{point.moment}" for point in thin)


def test_a_short_curve_is_kept_whole():
    program = make_program([], moments=4)
    assert [p.held_bytes for p in thin_curve(program, [1, 2, 3, 4])] == [1, 2, 3, 4]
    assert thin_curve(make_program([], moments=0), []) == ()


def test_too_few_points_are_refused():
    with pytest.raises(ValueError, match="Received: 2"):
        thin_curve(make_program([]), [1], points=2)
