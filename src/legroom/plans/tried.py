"""Sets of actions that were estimated, and which of them are worth having."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from legroom.records import Estimate
from legroom.records.plan import EXACTNESS, Action, Effect, Exactness, Plan

UNKNOWN_SLOWDOWN = 1.1


@dataclass(frozen=True, slots=True)
class Tried:
    """A set of actions, done to the step and estimated."""

    actions: tuple[Action, ...]
    estimate: Estimate
    slowdown: float | None = 1.0
    effect: Effect = field(default_factory=Effect)

    @property
    def exactness(self) -> Exactness:
        return self.effect.exactness

    @property
    def fits(self) -> bool:
        return self.estimate.fits

    def as_plan(self) -> Plan:
        found = self.estimate
        sizes = (found.peak_bytes, found.low_bytes, found.high_bytes)
        effect = self.effect
        return Plan(self.actions, *sizes, found.fits, self.slowdown, effect.exactness, effect.reasons, effect.tried)


def pareto(found: Sequence[Tried]) -> list[Tried]:
    """The ones worth having, best first: exact before equivalent, then the quickest, then the smallest."""

    def rank(one: Tried) -> tuple[int, float, int, int]:
        return EXACTNESS.index(one.exactness), slowness(one), len(one.actions), one.estimate.peak_bytes

    ordered = sorted(found, key=rank)
    return [one for i, one in enumerate(ordered) if not any(beats(other, one) for other in ordered[:i])]


def slowness(one: Tried) -> float:
    """For ranking: a plan whose time is not known comes after those that cost little."""
    return UNKNOWN_SLOWDOWN if one.slowdown is None else one.slowdown


def beats(one: Tried, other: Tried) -> bool:
    """At least as exact, as quick and as small."""
    return (
        EXACTNESS.index(one.exactness) <= EXACTNESS.index(other.exactness)
        and slowness(one) <= slowness(other)
        and one.estimate.peak_bytes <= other.estimate.peak_bytes
    )
