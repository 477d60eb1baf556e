"""Planning: what to ask (`plan.search`), how it is done (`apply`) and what it then takes (the engines), wired together."""

import time
from collections.abc import Sequence
from dataclasses import replace

from legroom.errors import InputError
from legroom.front.estimating import Estimator
from legroom.front.max_batch import find_max_batch
from legroom.front.source import Say, be_silent
from legroom.plans.cost import slowdown
from legroom.plans.remat import Cost, choose_blocks, smallest
from legroom.plans.search import Search, Tried, described
from legroom.records import Estimate
from legroom.records.plan import Action, Planning

ALLOWED = ("mixed-precision", "batchnorm-split")
PRECISION = Action("mixed_precision", (("policy", "mixed_bfloat16"),))


class Planner:
    """Plans for one captured step and one card."""

    def __init__(self, estimator: Estimator, batch: int | None, allow: Sequence[str], *, say: Say = be_silent) -> None:
        self.estimator = estimator
        self.batch = batch
        self.allow = require_allowed(allow)
        self.say = say
        self.plain: Estimate | None = None
        self.chain: list[tuple[str, Cost]] | None = None
        self.no_blocks: tuple[str, ...] = ()  # why no blocks can be recomputed

    def run(self, *, max_batch: bool) -> Planning:
        """Search, then put the step back as it was."""
        started = time.monotonic()
        precision = PRECISION if "mixed-precision" in self.allow else None
        search = Search(self.ask, self.blocks, precision=precision)
        try:
            found = search.run()
        finally:
            self.estimator.change(())
        if max_batch and self.plain is not None and self.plain.batch is not None:
            self.say("looking for the largest batch")
            largest = find_max_batch(self.estimator.at, self.plain)
            found = replace(found, max_batch=largest.max_batch)
        refused = (*found.refused, *self.no_blocks)
        return replace(found, refused=refused, seconds=time.monotonic() - started)

    def ask(self, actions: tuple[Action, ...]) -> Tried:
        """The step with these actions done to it, estimated."""
        self.say("trying " + (", ".join(described(action) for action in actions) or "the step as it is"))
        exactness, reasons = self.estimator.change(actions)
        if (
            exactness == "inexact"
            and any(a.name == "microbatch" for a in actions)
            and "batchnorm-split" not in self.allow
        ):
            raise InputError(f"it would change what is learned ({'; '.join(reasons)}): --allow batchnorm-split")
        found = self.estimator.at(self.batch)
        if self.plain is None:
            self.plain = found
        time_ratio = slowdown(found, self.plain, self.estimator.answers.card.gpu) if actions else 1.0
        return Tried(actions, found, time_ratio, exactness, reasons)

    def blocks(self, bytes_to_save: int) -> Action | None:
        """The cheapest blocks that save so many bytes (0: as many as can be saved)."""
        if self.chain is None:
            self.estimator.change(())
            try:
                segments = self.estimator.source.segments(self.batch)
            except InputError as error:
                self.no_blocks, segments = (f"remat: {error.message}",), []
            self.chain = [(found.pop("name"), Cost(**found)) for found in segments]
        costs = [cost for _, cost in self.chain]
        if not costs:
            return None
        everything = sum(cost.kept_bytes for cost in costs)
        choice = choose_blocks(costs, everything - bytes_to_save) if bytes_to_save else smallest(costs)
        if choice is None or not choice.blocks:
            return None
        names = [name for name, _ in self.chain]
        return Action("remat", (("blocks", tuple(tuple(names[i] for i in block) for block in choice.blocks)),))


def require_allowed(allow: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in allow if name not in ALLOWED]
    if unknown:
        raise InputError(f"There is nothing called {unknown[0]!r} to allow.", f"--allow takes {', '.join(ALLOWED)}.")
    return tuple(allow)
