"""The memory of a step over its schedule: the curve, its highest moment, and the parts that make it up there."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from legroom.memory.liveness import held_bytes, shares_at
from legroom.records.estimate import CurvePoint
from legroom.records.program import CATEGORIES, Category, Program

UNOWNED = "(other)"


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest moment of a step. `by_category` and `by_layer` each sum to `held_bytes`, exactly.

    `gap_bytes` is what the allocator takes beyond that: holes between buffers, and alignment.
    """

    moment: int
    held_bytes: int
    gap_bytes: int
    by_category: dict[Category, int]
    by_layer: dict[str, int]


def find_peak(program: Program, curve: Sequence[int] | None = None) -> Peak:
    """The first of the fullest moments, and who holds what then."""
    curve = held_bytes(program) if curve is None else curve
    highest = max(curve, default=0)
    moment = curve.index(highest) if curve else 0
    by_category: dict[Category, int] = dict.fromkeys(CATEGORIES, 0)
    by_layer: dict[str, int] = {}
    for position, share in shares_at(program, moment).items() if curve else ():
        buffer = program.buffers[position]
        by_category[buffer.category] += share
        layer = buffer.layer or UNOWNED
        by_layer[layer] = by_layer.get(layer, 0) + share
    return Peak(moment, highest, program.total_bytes - highest, by_category, by_layer)


def thin_curve(program: Program, curve: Sequence[int], points: int = 512) -> tuple[CurvePoint, ...]:
    """At most that many points of a curve: the highest of each stretch, so that its maximum stays; and its first and last."""
    if points < 3:
        raise ValueError(f"Invalid value for `points`. Received: {points}. Expected 3 or more.")
    if len(curve) <= points:
        moments = list(range(len(curve)))
    else:
        stretches = points - 2
        borders = [1 + (len(curve) - 2) * i // stretches for i in range(stretches + 1)]
        tops = [max(range(a, b), key=curve.__getitem__) for a, b in pairwise(borders)]
        moments = [0, *tops, len(curve) - 1]
    return tuple(CurvePoint(m, program.schedule[m].name, curve[m]) for m in moments)
