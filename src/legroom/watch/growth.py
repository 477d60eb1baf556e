"""Growth told from warm-up, by statistics alone.

A series is cut into windows of a few steps; a window's minimum leaves out the spikes of validation and of checkpoints. The last
windows are judged: lone jumps are taken out (a tracing, a larger batch, the allocator's next region), then a line is put through
the rest by Theil and Sen (the median of all slopes between two windows) with Sen's confidence interval, widened where neighbours
resemble each other. It is growth if the lower end of that interval is above zero, if it is enough to matter, if it went on in
every part of the stretch, and if it did not fade towards its end, as warm-up does.
"""

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from legroom.units import KIB

WINDOW = 8  # steps
WARM_UP = 2  # windows at the very beginning that are never judged
CONFIRM = 20  # windows that are looked at
FACTOR, LEVELS = 8, 3  # windows of 8, 64 and 512 steps: leaks that are slow, too
LEAST_BYTES = 1536 * KIB  # growth over a stretch that matters; four times as much on each slower level
PARTS = 4  # of the stretch: each must have grown
STEADY = 0.3  # of the usual part's growth, at least
FADING = 0.55  # the second half's slope against the first half's: less than this is warm-up
CONFIDENCE = 2.576  # normal quantile of a two-sided 99% interval
LONE = 2  # jumps that may be taken out; more of them are the growth itself


@dataclass(frozen=True, slots=True)
class Growth:
    """A slope in bytes per step with the ends of its 99% interval, over so many steps."""

    slope_bytes: float
    low_bytes: float
    high_bytes: float
    steps: int

    @property
    def grown_bytes(self) -> int:
        return round(self.slope_bytes * self.steps)


def judge(levels: Sequence[float], window_steps: int = WINDOW, least_bytes: float = LEAST_BYTES) -> Growth | None:
    """The growth of these window minima, None where there is none that can be sworn to."""
    count = len(levels)
    if count < PARTS * 2 or levels[-1] - levels[0] < least_bytes:
        return None
    smooth = without_jumps(levels)
    slope, low, high = sen(smooth)
    if not low > 0 or slope * (count - 1) < least_bytes or not steady(smooth) or fading(smooth):
        return None
    return Growth(slope / window_steps, low / window_steps, high / window_steps, (count - 1) * window_steps)


def without_jumps(levels: Sequence[float]) -> list[float]:
    """The series without one or two steps that are far out of line with the others."""
    rises = [after - before for before, after in itertools.pairwise(levels)]
    middle = median(rises)
    spread = 1.4826 * median(abs(rise - middle) for rise in rises)
    bound = max(6 * spread, 4 * abs(middle), 64 * KIB)
    lone = [at for at, rise in enumerate(rises) if abs(rise - middle) > bound]
    if len(lone) > LONE:
        return list(levels)
    for at in lone:
        rises[at] = middle
    result = [levels[0]]
    for rise in rises:
        result.append(result[-1] + rise)
    return result


def sen(levels: Sequence[float]) -> tuple[float, float, float]:
    """Theil and Sen's slope per window and its interval; the lower end is -inf where there are too few for one."""
    count = len(levels)
    slopes = sorted(
        (levels[j] - levels[i]) / (j - i) for i in range(count) for j in range(i + 1, count)
    )  # fmt: skip
    slope = median(slopes)
    rest = [level - slope * at for at, level in enumerate(levels)]
    astray = max(rest) - min(rest) > abs(slope)  # within one window's growth, what is left is rounding, not a drift
    alike = min(max(neighbourhood(rest), 0.0), 0.9) if astray else 0.0
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18 * (1 + alike) / (1 - alike))
    first = math.floor((len(slopes) - CONFIDENCE * deviation) / 2)
    if first < 0:
        return slope, -math.inf, math.inf
    return slope, slopes[first], slopes[len(slopes) - 1 - first]


def neighbourhood(rest: Sequence[float]) -> float:
    """How much a window resembles the one before it: the correlation of neighbours."""
    mean = sum(rest) / len(rest)
    off = [value - mean for value in rest]
    whole = sum(value * value for value in off)
    return sum(a * b for a, b in itertools.pairwise(off)) / whole if whole > 0 else 0.0


def steady(levels: Sequence[float]) -> bool:
    """Whether every part of the stretch lies above the part before it, by about the same."""
    size = len(levels) / (PARTS + 1)
    parts = [median(levels[round(at * size) : round((at + 1) * size)]) for at in range(PARTS + 1)]
    rises = [after - before for before, after in itertools.pairwise(parts)]
    usual = median(rises)
    return usual > 0 and min(rises) >= STEADY * usual


def fading(levels: Sequence[float]) -> bool:
    half = len(levels) // 2
    return theil(levels[-half:]) < FADING * theil(levels[:half])


def theil(levels: Sequence[float]) -> float:
    count = len(levels)
    return median((levels[j] - levels[i]) / (j - i) for i in range(count) for j in range(i + 1, count))


@dataclass(slots=True)
class Level:
    """Windows of one length: the last ones, and the one that is being filled."""

    steps: int
    least_bytes: float
    minima: deque[float] = field(default_factory=lambda: deque(maxlen=CONFIRM))
    lowest: float = math.inf
    filled: int = 0
    skip: int = 0

    def add(self, low: float, steps: int) -> float | None:
        """Take in what `steps` steps left; the window's minimum where that made it full."""
        self.lowest = min(self.lowest, low)
        self.filled += steps
        if self.filled < self.steps:
            return None
        done, self.lowest, self.filled = self.lowest, math.inf, 0
        if self.skip:
            self.skip -= 1
        else:
            self.minima.append(done)
        return done


class Trend:
    """One counter of a run, seen at every step."""

    def __init__(self) -> None:
        self.levels = [Level(WINDOW * FACTOR**n, LEAST_BYTES * 4**n) for n in range(LEVELS)]
        self.levels[0].skip = WARM_UP

    def add(self, value: float) -> bool:
        """Take in one step; whether a window became full."""
        low: float | None = self.levels[0].add(value, 1)
        full = low is not None
        for faster, slower in zip(self.levels, self.levels[1:], strict=False):
            if low is None:
                break
            low = slower.add(low, faster.steps)
        return full

    def confirmed(self) -> Growth | None:
        """Growth that an alarm may rest on, of the shortest windows that show it."""
        for level in self.levels:
            if len(level.minima) == CONFIRM:
                found = judge(list(level.minima), level.steps, level.least_bytes)
                if found is not None:
                    return found
        return None
