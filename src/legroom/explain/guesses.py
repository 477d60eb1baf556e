"""A Guess: one possible cause, how much speaks for it, and the lines that do. Weights become probabilities in `causes`."""

from collections.abc import Iterable
from dataclasses import dataclass

from legroom.records.diagnosis import CauseName, Fact


@dataclass(frozen=True, slots=True)
class Guess:
    """`weight` is between 0 and 1: how sure this sign alone makes us."""

    cause: CauseName
    weight: float
    why: str
    facts: tuple[Fact, ...] = ()


def guess(cause: CauseName, weight: float, why: str, facts: Iterable[Fact | None] = ()) -> Guess:
    return Guess(cause, weight, why, tuple(fact for fact in facts if fact is not None))
