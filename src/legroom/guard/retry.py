"""What to do with a model whose step ran out of memory: more micro-batches, or layers that are recomputed.

Twice as many micro-batches each time, down to one sample, then recomputed layers on top. Where micro-batches would change what
is learned (batch normalisation), recomputed layers come first, and micro-batches only if the user allows them.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from legroom.changes import microbatch, remat
from legroom.changes.actions import perform
from legroom.changes.drawn import nothing_drawn
from legroom.changes.segments import costs_of
from legroom.errors import InputError, LegroomError
from legroom.plans.remat import Cost
from legroom.plans.remat_graph import least
from legroom.records.plan import Action, Exactness
from legroom.records.run import Way

ALLOWED = "batchnorm-split"


class GaveUp(LegroomError):
    """A step that cannot be done in the memory there is; everything is as it was before it."""


def gave_up(message: str, hint: str) -> GaveUp:
    """A GaveUp that a script's own `except ResourceExhaustedError` knows, too."""
    tf: Any = sys.modules.get("tensorflow")
    if tf is None:
        return GaveUp(message, hint)

    class OnTensorFlow(GaveUp, tf.errors.ResourceExhaustedError):  # type: ignore[misc]
        message = ""  # a property there, a plain attribute here

        def __init__(self) -> None:
            tf.errors.ResourceExhaustedError.__init__(self, None, None, message)
            GaveUp.__init__(self, message, hint)

        __str__ = GaveUp.__str__

    OnTensorFlow.__name__ = OnTensorFlow.__qualname__ = "GaveUp"
    return OnTensorFlow()


@dataclass
class Ways:
    """One model and the way its steps are run now."""

    model: Any
    allow: Sequence[str] = ()
    way: Way = field(default_factory=Way)
    reasons: dict[str, str] = field(default_factory=dict)  # why something is not done, by what it is
    undo: Callable[[], None] | None = None
    before: Way | None = None  # the way taken before this one
    planned: Any = None  # the step that a plan has put in place before

    def __post_init__(self) -> None:
        planned = self.model.__dict__.get("train_step")
        if hasattr(planned, microbatch.MARK):
            self.planned = planned
            self.way = Way(getattr(planned, microbatch.MARK))

    def make_smaller(self, batch: int | None) -> bool:
        """Run the model's steps in less memory, if there is a way that may be taken; it stays until it is taken back."""
        for way in self.smaller(batch):
            before = self.way
            try:
                self.take(way, batch)
            except LegroomError as error:
                self.reasons["recomputed" if way.recomputed > self.way.recomputed else "split"] = error.message
                continue
            self.before = before
            return True
        return False

    def refuse(self, message: str) -> bool:
        """The way taken last cannot be gone after all: the one before is taken again. False where the guard has taken none."""
        if self.undo is None or self.before is None:
            return False
        self.reasons["recomputed" if self.way.recomputed > self.before.recomputed else "split"] = message
        before, self.before = self.before, None
        self.take(before, None)
        return True

    def smaller(self, batch: int | None) -> Iterator[Way]:
        """What could be tried next, the best first."""
        now = self.way
        count = 2 * now.micro_batches if batch is None else min(2 * now.micro_batches, batch)
        kind, why = self.splitting()
        more = [] if count == now.micro_batches or "split" in self.reasons else [Way(count, now.recomputed)]
        again = [] if now.recomputed or "recomputed" in self.reasons else [Way(now.micro_batches, True)]
        if kind == "inexact" and ALLOWED not in self.allow and now.micro_batches == 1:
            self.reasons["not allowed"] = (
                f"Micro-batches would change what is learned ({why[0]}): Guard(allow=({ALLOWED!r},)) allows it."
            )
            more = []
        yield from (*again, *more) if kind == "inexact" else (*more, *again)

    def splitting(self) -> tuple[Exactness, tuple[str, ...]]:
        """How exact micro-batches are, and why not quite."""
        return microbatch.exactness(self.model)

    def make_larger(self, batch: int | None) -> bool:
        """Half as many micro-batches, where there are some that the guard has made."""
        planned = getattr(self.planned, microbatch.MARK, 1)
        count = max(self.way.micro_batches // 2, planned)
        if count == self.way.micro_batches:
            return False
        self.take(Way(count, self.way.recomputed), batch)
        return True

    def take(self, way: Way, batch: int | None) -> None:
        """Change the model; if that is refused, it is as it was."""
        before = self.way
        self.take_back()
        try:
            self.change(way, batch)
        except BaseException:
            with suppress(LegroomError):
                self.change(before, batch)
            raise

    def change(self, way: Way, batch: int | None) -> None:
        actions: list[Action] = []
        if way.recomputed:
            actions.append(Action("remat", (("blocks", all_blocks(self.model, batch or 1)),)))
        if self.planned is not None and way.micro_batches != getattr(self.planned, microbatch.MARK):
            del self.model.train_step  # the plan's; `take_back` puts it in place again
        if "train_step" not in self.model.__dict__ or self.planned is None:
            actions += [Action("microbatch", (("count", way.micro_batches),))] if way.micro_batches > 1 else []
        try:
            with nothing_drawn():
                self.undo = perform(self.model, actions).undo
        except BaseException:
            self.take_back()
            raise
        self.way = way

    def take_back(self) -> None:
        """The model as it was when the guard found it."""
        undo, self.undo = self.undo, None
        if undo is not None:
            undo()
        if self.planned is not None:
            self.model.train_step = self.planned
        self.way = Way(getattr(self.planned, microbatch.MARK, 1))


def all_blocks(model: Any, batch: int) -> tuple[tuple[str, ...], ...]:
    """Every layer that can be, recomputed, in the blocks that keep the least."""
    segments = costs_of(model, batch)
    names = [segment["name"] for segment in segments]
    blocks = least([Cost.of(segment) for segment in segments]).blocks
    if not blocks:
        why = remat.cannot(model)
        raise InputError(
            f"No layer of {model.name!r} would save memory if it were recomputed{'; ' if why else ''}{'; '.join(why[:2])}."
        )
    return tuple(tuple(names[place] for place in block) for block in blocks)
