"""The cheapest set of actions that fits, found with few estimates. What an action does is somebody else's business: `ask`
applies a set of them and estimates the step, exactly; here is decided what to ask.

First as many micro-batches as it takes, then recomputed blocks, then both. The peak of k micro-batches is close to
a + b/k, so the smallest k that fits is found by drawing that curve through what is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from legroom.errors import LegroomError
from legroom.records import Estimate
from legroom.records.plan import EXACTNESS, Action, Exactness, Plan, Planning

MOST_COUNTS = 5  # estimates for one series of micro-batches
MOST_BLOCKS = 4  # and of recomputed blocks
UNKNOWN_SLOWDOWN = 1.1


@dataclass(frozen=True, slots=True)
class Tried:
    """A set of actions, done to the step and estimated."""

    actions: tuple[Action, ...]
    estimate: Estimate
    slowdown: float | None = 1.0
    exactness: Exactness = "exact"
    reasons: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.estimate.fits

    def as_plan(self) -> Plan:
        found = self.estimate
        sizes = (found.peak_bytes, found.low_bytes, found.high_bytes)
        return Plan(self.actions, *sizes, found.fits, self.slowdown, self.exactness, self.reasons)


Ask = Callable[[tuple[Action, ...]], Tried]
Blocks = Callable[[int], Action | None]  # the cheapest blocks to recompute that save so many bytes, None if none do


class Search:
    """Asks, remembers, and stops asking when it knows."""

    def __init__(self, ask: Ask, blocks: Blocks, *, precision: Action | None = None) -> None:
        """`precision` is what may be done though it is inexact."""
        self.ask = ask
        self.blocks = blocks
        self.precision = precision
        self.tried: dict[tuple[Action, ...], Tried] = {}
        self.refused: dict[str, None] = {}

    def run(self) -> Planning:
        plain = self.ask(())
        self.tried[()] = plain
        if not plain.fits:
            self.change(plain)
            lower = self.try_out((self.precision,)) if self.precision is not None else None
            if lower is not None and not lower.fits:
                self.change(lower)
        return self.answer(plain)

    def change(self, start: Tried) -> None:
        """Micro-batches, recomputed blocks, and where neither will do, micro-batches of recomputed blocks."""
        split = self.fewest_slices(start)
        recomputed = self.cheapest_blocks(start)
        enough = [found for found in (split, recomputed) if found is not None and found.fits]
        if recomputed is not None and not enough:
            self.fewest_slices(recomputed)

    def fewest_slices(self, start: Tried) -> Tried | None:
        """The fewest micro-batches that fit on top of what `start` does already."""
        batch = start.estimate.batch
        if not batch or batch < 2:
            self.refused["microbatch: the batch has one example, or its size is not known"] = None
            return None
        known: dict[int, Tried] = {1: start}
        best: Tried | None = None
        for _ in range(MOST_COUNTS):
            count = next_count(known, batch)
            if count is None:
                break
            found = self.try_out((*start.actions, Action("microbatch", (("count", count),))))
            if found is None:
                break
            known[count] = found
            if found.fits and (best is None or count < best.actions[-1]["count"]):
                best = found
        return best

    def cheapest_blocks(self, start: Tried) -> Tried | None:
        """The cheapest blocks that fit; where none do, those that save most."""
        need = start.estimate.high_bytes - start.estimate.usable_bytes
        best: Tried | None = None
        for _ in range(MOST_BLOCKS):
            action = self.blocks(max(1, need))
            if action is None:
                action = self.blocks(0) if best is None else None
            if action is None:
                break
            found = self.try_out((*start.actions, action))
            if found is None or (best is not None and found.actions == best.actions):
                break
            if best is None or found.fits or found.estimate.high_bytes < best.estimate.high_bytes:
                best = found
            if found.fits:
                break
            need += max(found.estimate.high_bytes - found.estimate.usable_bytes, need // 10)
        return best

    def try_out(self, actions: tuple[Action, ...]) -> Tried | None:
        """Ask once; what cannot be done, and what saves nothing, is refused."""
        if actions in self.tried:
            return self.tried[actions]
        try:
            found = self.ask(actions)
        except LegroomError as error:
            self.refused[f"{actions[-1].name}: {error.message}"] = None
            return None
        before = self.tried.get(actions[:-1])
        if before is not None and found.estimate.peak_bytes >= before.estimate.peak_bytes:
            self.refused[f"{described(actions[-1])}: it saves nothing"] = None
            return None
        self.tried[actions] = found
        return found

    def answer(self, plain: Tried) -> Planning:
        fitting = [found for found in self.tried.values() if found.fits]
        plans = pareto(fitting) if fitting else sorted(self.tried.values(), key=lambda one: one.estimate.high_bytes)[:3]
        estimate = plain.estimate
        return Planning(
            gpu=estimate.gpu,
            batch=estimate.batch,
            usable_bytes=estimate.usable_bytes,
            unchanged=plain.as_plan(),
            plans=tuple(found.as_plan() for found in plans),
            chosen=0 if fitting else None,
            max_batch=estimate.max_batch,
            refused=tuple(self.refused),
            notes=estimate.notes,
        )


def next_count(known: dict[int, Tried], batch: int) -> int | None:
    """The number of micro-batches to try next, or None when the fewest that fit are known, or nothing fits."""
    too_few = max((count for count, found in known.items() if not found.fits), default=0)
    enough = min((count for count, found in known.items() if found.fits and count > too_few), default=None)
    if enough is not None and enough - too_few <= 1:
        return None
    guess = drawn(known)
    if enough is None:
        return None if too_few >= batch else even(min(batch, max(too_few + 1, guess or 2 * too_few)), batch)
    between = [count for count in range(too_few + 1, enough) if even(count, batch) == count]
    if not between:
        return None
    wanted = max(too_few + 1, guess) if guess else (too_few + enough) // 2
    return min(between, key=lambda count: (abs(count - wanted), -count))


def even(count: int, batch: int) -> int:
    """The next count that cuts the batch into equal slices, if one is near: a smaller last slice is a second program to hold."""
    return next((more for more in range(count, min(batch, 2 * count) + 1) if batch % more == 0), count)


def drawn(known: dict[int, Tried]) -> int | None:
    """Where a + b/k through the two points nearest to the limit meets it; with one point, what does not depend on the batch is a."""
    usable = next(iter(known.values())).estimate.usable_bytes
    near = sorted(known, key=lambda count: abs(known[count].estimate.high_bytes - usable))[:2]
    if len(near) == 1:
        estimate = known[near[0]].estimate
        kept = sum(estimate.breakdown.get(name, 0) for name in ("weights", "optimizer", "gradients", "other", "data"))
        a: float = kept + estimate.breakdown.get("weights", 0)  # and one sum of gradients
        b: float = max(0, estimate.high_bytes - kept) * near[0]
    else:
        one, two = sorted(near)
        high_one, high_two = (known[count].estimate.high_bytes for count in (one, two))
        b = (high_one - high_two) / (1 / one - 1 / two)
        a = high_one - b / one
    return ceil(b / (usable - a)) if usable > a and b > 0 else None


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


def described(action: Action) -> str:
    """An action in a few words."""
    if action.name == "microbatch":
        return f"{action['count']} micro-batches"
    if action.name == "remat":
        return f"{len(action['blocks'])} blocks recomputed"
    return " ".join([action.name, *(str(value) for _, value in action.settings)])
