"""Which step of several runs is told: the one with the middle peak.

On a CPU a step's peak jumps between a few values from step to step, which the allocator's state and the order of ops choose among. The middle
of one step of each run is now one of these values, now another; the middle of five steps of each is nearer to that of real steps.
"""

from collections.abc import Sequence

MOST_NODES = 15_000  # that a run's further steps may have that are made for the middle
FIRST_SEED, MOST_SEEDS = 5, 25  # of runs that are made for the middle only


def steps_after(nodes: int, told_steps: int) -> int:
    """How many steps after its second one each run makes for the middle; of a large graph fewer, or none."""
    return min(told_steps - 1, MOST_NODES // max(1, nodes))


def more_seeds(nodes: int) -> tuple[int, ...]:
    """Of the runs that a small graph is given beyond the usual ones, for the middle."""
    return tuple(range(FIRST_SEED, min(MOST_SEEDS, MOST_NODES // max(1, nodes))))


def middle_step(peaks: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Of the peaks of each run's steps: which run has the middle one, and after how many steps."""
    steps = sorted((peak, which, after) for which, run in enumerate(peaks) for after, peak in enumerate(run))
    _, which, after = steps[len(steps) // 2]
    return which, after
