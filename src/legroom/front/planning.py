"""Planning: what to ask (`plan.search`), how it is done (`apply`) and what it then takes (the engines), wired together."""

import time
from collections.abc import Sequence
from dataclasses import replace

from legroom.errors import InputError
from legroom.front.advising import with_advice
from legroom.front.estimating import Estimator
from legroom.front.largest import Largest
from legroom.front.proposals import note_on, proposals_for
from legroom.front.source import Say, be_silent
from legroom.plans.cost import slowdown
from legroom.plans.remat import Cost
from legroom.plans.remat_graph import choose, least
from legroom.plans.search import Search, described
from legroom.plans.tried import Tried
from legroom.records import Estimate
from legroom.records.plan import Action, Planning

ALLOWED = ("mixed-precision", "batchnorm-split", "optimizer")
INEXACT = ("mixed_precision", "optimizer")  # whatever the model is


class Planner:
    """Plans for one captured step and one card."""

    def __init__(
        self,
        estimator: Estimator,
        batch: int | None,
        allow: str | Sequence[str],
        *,
        say: Say = be_silent,
        anew: bool = True,
    ) -> None:
        """`anew`: the process that trains is yet to be started, with whatever settings a plan needs."""
        self.estimator = estimator
        self.batch = batch
        self.allow = require_allowed(allow)
        self.anew = anew
        self.say = say
        self.plain: Estimate | None = None
        self.known: dict[tuple[Action, ...], Estimate] = {}  # what was asked so far
        self.chain: list[tuple[str, Cost]] | None = None
        self.no_blocks: tuple[str, ...] = ()  # why no blocks can be recomputed
        self.largest: Largest | None = None

    def run(self, *, max_batch: bool, advice: bool = False) -> Planning:
        """Search, then put the step back as it was."""
        started = time.monotonic()
        self.largest = Largest(self.estimator, self.say) if max_batch else None
        offered = proposals_for(self.estimator, self.allow, anew=self.anew)
        search = Search(self.ask, self.blocks, easy=offered.easy, inexact=offered.inexact)
        try:
            found = search.run()
        finally:
            self.estimator.change(())
        refused, notes = (*found.refused, *offered.refused, *self.no_blocks), (*found.notes, *note_on(self.plain))
        found = replace(found, refused=refused, notes=notes).for_model(self.estimator.source.portrait())
        if self.largest is not None:
            found = self.largest.fill_in(found, self.known)
        if self.plain is not None and (advice or found.chosen is None):
            found = with_advice(found, self.estimator, self.plain, self.batch, self.say)
        return replace(found, seconds=time.monotonic() - started)

    def ask(self, actions: tuple[Action, ...]) -> Tried:
        """The step with these actions done to it, estimated."""
        self.say("trying " + (", ".join(described(action) for action in actions) or "the step as it is"))
        effect = self.estimator.change(actions)
        if effect.exactness == "inexact" and any(action.name == "microbatch" for action in actions):
            self.require_allowed_split(actions)
        found = self.known[actions] = self.estimator.at(self.batch)
        if self.plain is None:
            self.plain = found
            if self.largest is not None:
                self.largest.start(found)
        policy = next((action["policy"] for action in actions if action.name == "mixed_precision"), "float32")
        time_ratio = slowdown(found, self.plain, self.estimator.answers.card.gpu, policy) if actions else 1.0
        return Tried(actions, found, time_ratio, effect)

    def require_allowed_split(self, actions: tuple[Action, ...]) -> None:
        """Micro-batches that change what is learned are refused; what else of these actions does so was allowed."""
        if "batchnorm-split" in self.allow:
            return
        others = tuple(action for action in actions if action.name not in INEXACT)
        effect = self.estimator.change(others)
        if effect.exactness == "inexact":
            more = f" and {len(effect.reasons) - 1} more" if len(effect.reasons) > 1 else ""
            raise InputError(f"it would change what is learned ({effect.reasons[0]}{more}): --allow batchnorm-split")
        self.estimator.change(actions)

    def blocks(self, bytes_to_save: int) -> Action | None:
        """The cheapest blocks that save so many bytes (0: as many as can be saved)."""
        if self.chain is None:
            self.estimator.change(())
            try:
                segments = self.estimator.source.segments(self.batch)
            except InputError as error:
                self.no_blocks, segments = (f"remat: {error.message}",), []
            self.chain = [(found["name"], Cost.of(found)) for found in segments]
        costs = [cost for _, cost in self.chain]
        if not costs:
            return None
        everything = sum(cost.kept_bytes for cost in costs)
        choice = choose(costs, everything - bytes_to_save) if bytes_to_save else least(costs)
        if choice is None or not choice.blocks:
            return None
        names = [name for name, _ in self.chain]
        return Action("remat", (("blocks", tuple(tuple(names[i] for i in block) for block in choice.blocks)),))


def require_allowed(allow: str | Sequence[str]) -> tuple[str, ...]:
    allow = (allow,) if isinstance(allow, str) else allow
    unknown = [name for name in allow if name not in ALLOWED]
    if unknown:
        raise InputError(f"There is nothing called {unknown[0]!r} to allow.", f"allow takes {', '.join(ALLOWED)}.")
    return tuple(allow)
