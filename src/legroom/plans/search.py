"""The cheapest set of actions that fits, found with few estimates. What an action does is somebody else's business: `ask`
applies a set of them and estimates the step, exactly; here is decided what to ask.

First what costs next to nothing (`easy`), one on top of the other as long as each helps; then as many micro-batches as it takes,
then recomputed blocks, then both; last, what was allowed though it changes what is learned.
"""

from collections.abc import Callable, Sequence

from legroom.errors import LegroomError
from legroom.plans.counts import next_count
from legroom.plans.tried import Tried, pareto, slowness
from legroom.records.plan import Action, Planning
from legroom.units import format_bytes

MOST_COUNTS = 5  # estimates for one series of micro-batches
MOST_BLOCKS = 4  # and of recomputed blocks
MOST_ESTIMATES = 14  # of exact plans, all together
MOST_INEXACT = 6  # and of those that were allowed
EASY_SLOWDOWN = 1.25  # what is dearer is not easy
WORTH = 0.05  # of what is missing: an action that saves less is not worth it

Ask = Callable[[tuple[Action, ...]], Tried]
Blocks = Callable[[int], Action | None]  # the cheapest blocks to recompute that save so many bytes, None if none do
Proposal = Callable[[Tried], Action | None]  # what to add to a set that was tried, None where it would not apply


class Search:
    """Asks, remembers, and stops asking when it knows."""

    def __init__(
        self, ask: Ask, blocks: Blocks, *, easy: Sequence[Proposal] = (), inexact: Sequence[Action] = ()
    ) -> None:
        """`easy` is exact and costs little, `inexact` may be done though it changes what is learned."""
        self.ask = ask
        self.blocks = blocks
        self.easy = easy
        self.inexact = inexact
        self.left = MOST_ESTIMATES
        self.tried: dict[tuple[Action, ...], Tried] = {}
        self.refused: dict[str, None] = {}

    def run(self) -> Planning:
        plain = self.ask(())
        self.tried[()] = plain
        if not plain.fits:
            base, others = self.add_easy(plain)
            if not base.fits:
                self.change(base)
                self.without_easy(plain, base)
            for other in others:
                if not self.found:
                    self.change(other)
            self.left = MOST_INEXACT
            self.add_inexact(base)
        return self.answer(plain)

    @property
    def found(self) -> bool:
        return any(one.fits for one in self.tried.values())

    def add_easy(self, plain: Tried) -> tuple[Tried, list[Tried]]:
        """One after the other, until the step fits; what is dear or not quite exact is another way to start from."""
        base, others = plain, []
        for propose in self.easy:
            action = propose(base)
            found = self.try_out((*without(base, action), action)) if action is not None else None
            if action is None or found is None or not self.is_worth(action, base, found):
                continue
            if slowness(found) > EASY_SLOWDOWN or found.exactness != "exact":
                others.append(found)
                continue
            base = found
            if base.fits:
                self.leave_out(plain, base)
                break
        return base, others

    def is_worth(self, action: Action, before: Tried, after: Tried) -> bool:
        missing = shortage(before)
        saved = missing - shortage(after)
        if after.fits or saved >= WORTH * missing:
            return True
        what = f"it saves {format_bytes(max(0, saved))} of the {format_bytes(missing)} that are too much"
        self.refused[f"{described(action)}: {what}"] = None
        return False

    def leave_out(self, plain: Tried, fitting: Tried) -> None:
        """The last action alone, where it looks as if the others were not needed."""
        before = self.tried.get(fitting.actions[:-1])
        if before is None or before is plain:
            return
        saved = before.estimate.need_bytes - fitting.estimate.need_bytes
        if plain.estimate.need_bytes - saved <= plain.estimate.usable_bytes:
            self.try_out(fitting.actions[-1:])

    def without_easy(self, plain: Tried, base: Tried) -> None:
        """The best plan without what costs little, where it looks as if it fitted all the same: little is more than nothing."""
        best = next(iter(pareto([one for one in self.tried.values() if one.fits])), None)
        if best is None or not base.actions or best.actions[: len(base.actions)] != base.actions:
            return
        saved = plain.estimate.need_bytes - base.estimate.need_bytes
        if best.estimate.need_bytes + saved <= plain.estimate.usable_bytes:
            self.try_out(best.actions[len(base.actions) :])

    def add_inexact(self, base: Tried) -> None:
        """Each of them alone; where nothing fits yet, the one that saves most together with what is exact."""
        start = base if not base.fits else self.tried[()]
        found = [self.try_out((*start.actions, action)) for action in self.inexact]
        helping = [one for one in found if one is not None]
        if helping and not self.found:
            self.change(min(helping, key=lambda one: one.estimate.need_bytes))

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
        need = shortage(start)
        best: Tried | None = None
        for _ in range(MOST_BLOCKS):
            action = self.blocks(max(1, need))
            if action is None:
                break
            found = self.try_out((*start.actions, action))
            if found is None or (best is not None and found.actions == best.actions):
                break
            if best is None or found.fits or found.estimate.need_bytes < best.estimate.need_bytes:
                best = found
            if found.fits:
                break
            need += max(shortage(found), need // 10)
        return best or self.leanest_blocks(start)

    def leanest_blocks(self, start: Tried) -> Tried | None:
        """Where none keep as little as is needed: those that keep the least, or more if that leaves less to chance."""
        need = shortage(start)
        found = []
        for bytes_to_save in (0, need * 2 // 3, need * 4 // 9):
            action = self.blocks(bytes_to_save)
            one = self.try_out((*start.actions, action)) if action is not None else None
            found += [one] if one is not None else []
            if one is not None and one.fits:
                break
        return min(found, key=lambda one: (not one.fits, one.estimate.need_bytes), default=None)

    def try_out(self, actions: tuple[Action, ...]) -> Tried | None:
        """Ask once; what cannot be done, and what saves nothing, is refused."""
        if actions in self.tried:
            return self.tried[actions]
        if self.left <= 0:
            self.refused["the search: it has made all the estimates that it may; more combinations were not tried"] = (
                None
            )
            return None
        self.left -= 1
        try:
            found = self.ask(actions)
        except LegroomError as error:
            self.refused[f"{actions[-1].name}: {error.message}"] = None
            return None
        before = self.tried.get(actions[:-1])
        if before is not None and not helps(before, found):
            self.refused[f"{described(actions[-1])}: it saves nothing"] = None
            return None
        self.tried[actions] = found
        return found

    def nearest(self) -> list[Tried]:
        """Where none surely fits: the three smallest, and the quickest of which it is expected."""
        found = sorted(self.tried.values(), key=lambda one: one.estimate.need_bytes)
        likely = [one for one in found[3:] if one.estimate.peak_bytes <= one.estimate.usable_bytes]
        return [*found[:3], *sorted(likely, key=slowness)[:1]]

    def answer(self, plain: Tried) -> Planning:
        fitting = [found for found in self.tried.values() if found.fits]
        plans = pareto(fitting) if fitting else self.nearest()
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


def shortage(one: Tried) -> int:
    """How many bytes are too few; negative where there is room to spare."""
    return one.estimate.need_bytes - one.estimate.usable_bytes


def helps(before: Tried, after: Tried) -> bool:
    """Whether the step takes less, or may take more."""
    smaller = after.estimate.peak_bytes < before.estimate.peak_bytes
    return smaller or after.estimate.usable_bytes > before.estimate.usable_bytes


def without(base: Tried, action: Action) -> tuple[Action, ...]:
    """What was done so far; another action of the same name takes the place of the first."""
    return tuple(one for one in base.actions if one.name != action.name)


def described(action: Action) -> str:
    """An action in a few words."""
    words = {"dropout": "dropout without masks", "host_data": "arrays kept in RAM"}
    if action.name == "microbatch":
        return f"{action['count']} micro-batches"
    if action.name == "remat":
        return f"{len(action['blocks'])} blocks recomputed"
    if action.name == "compile":
        return f"jit_compile={action['jit_compile']}"
    if action.name in ("pool", "allocator"):
        return str(action["setting"])
    if action.name == "xla_memory":
        return f"XLA held to {format_bytes(action['limit_bytes'])}"
    if action.name in words:
        return words[action.name]
    return " ".join([action.name, *(str(value) for _, value in action.settings)])
