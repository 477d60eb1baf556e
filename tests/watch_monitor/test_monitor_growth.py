"""Growth on made-up series: how often it is found where it is, and where it is not."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.units import MIB
from legroom.watch.growth import CONFIRM, Trend, judge

RUNS, STEPS = 60, 300


def found_at(series, steps=STEPS):
    trend = Trend()
    for step in range(steps):
        if trend.add(series(step)) and trend.confirmed():
            return step
    return None


def rate(make):
    """The share of made-up runs in which growth was found."""
    return sum(found_at(make(random.Random(seed))) is not None for seed in range(RUNS)) / RUNS


def level(noise, more=lambda step: 0.0):
    return lambda chance: lambda step: 600 * MIB + more(step) + chance.gauss(0, noise)


def jumps(count):
    def make(chance):
        places = [chance.randrange(STEPS) for _ in range(count)]
        return lambda step: 600 * MIB + 20 * MIB * sum(step >= at for at in places) + chance.gauss(0, 0.05 * MIB)

    return make


QUIET = {
    "noise": level(MIB),
    "much noise": level(10 * MIB),
    "one jump": jumps(1),
    "two jumps": jumps(2),
    "validation spikes": level(0.1 * MIB, lambda step: 200 * MIB if step % 50 > 44 else 0),
    "warm-up in 30 steps": level(0.05 * MIB, lambda step: 50 * MIB * (1 - math.exp(-step / 30))),
    "warm-up in 100 steps": level(0.05 * MIB, lambda step: 50 * MIB * (1 - math.exp(-step / 100))),
    "filled after 100 steps": level(0.05 * MIB, lambda step: 0.2 * MIB * min(step, 100)),
    "shrinking": level(0.05 * MIB, lambda step: -0.1 * MIB * step),
}
GROWING = {
    "15 kB a step": level(0.1 * MIB, lambda step: 15e3 * step),
    "100 kB a step, noisy": level(MIB, lambda step: 1e5 * step),
    "1 MB a step, very noisy": level(5 * MIB, lambda step: 1e6 * step),
    "4 MiB every 40 steps": level(0.05 * MIB, lambda step: 4 * MIB * (step // 40)),
    "after a warm-up": level(0.1 * MIB, lambda step: 1e5 * step + 50 * MIB * (1 - math.exp(-step / 10))),
    "under spikes": level(0.1 * MIB, lambda step: 1e5 * step + (200 * MIB if step % 50 > 44 else 0)),
}


@pytest.mark.parametrize("name", QUIET)
def test_warm_up_is_not_growth(name):
    assert rate(QUIET[name]) <= 0.02


@pytest.mark.parametrize("name", GROWING)
def test_growth_is_found_within_300_steps(name):
    assert rate(GROWING[name]) >= 0.95


@given(st.floats(1e4, 1e7), st.floats(0, 1e11))
def test_a_line_is_found_with_its_slope(slope, start):
    found = judge([start + slope * 8 * at for at in range(CONFIRM)], 8, 0)
    assert found is not None
    assert found.slope_bytes == pytest.approx(slope, rel=1e-2)
    assert 0 < found.low_bytes <= found.slope_bytes <= found.high_bytes


@given(st.lists(st.integers(0, 2**40), min_size=CONFIRM, max_size=CONFIRM))
def test_what_does_not_end_higher_never_grows(levels):
    assert judge(sorted(levels, reverse=True)) is None
    found = judge(levels)
    assert found is None or found.low_bytes > 0


def test_a_slow_leak_is_found_by_the_longer_windows():
    at = found_at(lambda step: 600 * MIB + 8e3 * step, 4000)
    assert at is not None
    assert at > STEPS
