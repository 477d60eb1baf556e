"""The function that `fit` calls for each step while it is guarded, in place of Keras' own.

Keras' `train_function` pulls the batch inside its graph, so that after an error it is lost. This one takes the batch itself, and
can take the same one again.

Private names used, tested with Keras 3.15.1: `Trainer.train_function` (called anew at each step).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

from legroom.engines.out_of_memory import oom_of
from legroom.errors import InputError
from legroom.guard.calls import batch_of
from legroom.guard.compiled_step import CompiledStep, asked_by_xla
from legroom.guard.copying import CopyStep
from legroom.guard.execution import execute
from legroom.guard.forgetting import forget
from legroom.guard.journal import Witness
from legroom.guard.retry import Ways, gave_up
from legroom.guard.room import Room
from legroom.guard.transaction import EagerStep, GraphStep, NotSeparable, Step, StepFailed
from legroom.guard.update import Update
from legroom.records.run import Event, EventKind, Where
from legroom.report.guard import refusal


@dataclass(frozen=True, slots=True)
class Options:
    """What the user has asked of the guard."""

    allow: tuple[str, ...] = ()
    copies: bool = False
    retry_larger: int | None = None
    budget_bytes: int | None = None


@dataclass
class Training:
    """One model's guarded training steps."""

    model: Any
    original: Any
    witness: Witness
    options: Options
    room: Room
    ways: Ways
    good: int = 0  # steps since the last change
    runner: Step | None = None
    failure: Event | None = None  # the last one
    ended: Callable[[], None] = lambda: None

    @cached_property
    def update(self) -> Update:
        return Update(self.model, self.room, self.note_update)

    def note_update(self, error: BaseException) -> None:
        """An update that did not fit as one graph: it is done op by op."""
        self.witness.note(self.witness.event("out_of_memory", "update", None, oom_of(error), self.ways.way))

    def __call__(self, iterator: Any) -> Any:
        """As many steps as Keras wants in one execution; an error ends the guard."""
        return execute(iterator, self.model.steps_per_execution, self.step, self.witness, self.ended)

    def step(self, data: Any) -> Any:
        """One step with this batch, in as many attempts as it takes."""
        if self.witness.position.goes_by(data):
            return {}
        self.witness.position.step += 1
        if self.options.retry_larger is not None and self.good >= self.options.retry_larger:
            self.try_larger(data)
        while True:
            if self.runner is None:
                self.runner = self.new_runner()
            try:
                logs = self.runner(data)
            except StepFailed as failed:
                phase, error = failed.phase, failed.error
            except NotSeparable as refused:
                reason = refused.message
                if not self.options.copies:
                    return self.step_unguarded(data, f"{reason} {refused.hint}")
                self.runner = CopyStep(self.model, self.update)
                continue
            except InputError as refused:  # seen only when the new way was traced
                if self.failure is None or not self.ways.refuse(refused.message):
                    raise
                self.find_another_way(self.failure)
                continue
            else:
                self.good += 1
                return logs
            self.recover(data, phase, error)
            del error

    def new_runner(self) -> Step:
        if self.model.jit_compile and not self.model.run_eagerly:
            return CompiledStep(self.model, self.room, self.options.budget_bytes)
        if self.model.run_eagerly:
            return EagerStep(self.model, self.room, self.update)
        return GraphStep(self.model, self.room, self.update)

    def recover(self, data: Any, phase: Where, error: BaseException | None) -> None:
        """All is as before the step: note what happened, and find another way or give up."""
        fact = None if error is None else oom_of(error)
        forget(error)
        del error
        if fact is not None and fact.asked_bytes is None:
            fact = replace(fact, asked_bytes=asked_by_xla(fact.message))
        before = self.failure
        self.failure = self.witness.event("out_of_memory", phase, batch_of(data), fact, self.ways.way)
        self.witness.note(self.failure)
        if before is not None and is_hopeless(before, self.failure):
            self.give_up(self.failure)
        self.find_another_way(self.failure)

    def find_another_way(self, failure: Event) -> None:
        """The next way that may be taken; without one, everything ends here."""
        runner, self.runner = self.runner, None
        if failure.where == "update" or not self.ways.make_smaller(failure.batch):
            self.give_up(failure)
        if isinstance(runner, CopyStep):
            self.runner = CopyStep(self.model, self.update)
        self.after_change()
        kind: EventKind = "does_not_fit" if isinstance(runner, CompiledStep) else "changed"
        self.witness.note(replace(failure, kind=kind, way=self.ways.way, message=""))

    def give_up(self, failure: Event) -> NoReturn:
        message, hint = refusal(failure, tuple(self.ways.reasons.values()))
        self.witness.note(replace(failure, kind="gave_up", message=message))
        raise gave_up(message, hint)

    def try_larger(self, data: Any) -> None:
        self.good = 0
        if self.ways.make_larger(batch_of(data)):
            self.runner = None
            self.after_change()
            self.witness.note(self.witness.event("larger", "", batch_of(data), way=self.ways.way))

    def after_change(self) -> None:
        """A change makes Keras forget its functions, and this one with them."""
        self.good = 0
        self.model.train_function = self

    def step_unguarded(self, data: Any, reason: str) -> Any:
        """Keras' own step, from now on."""
        self.witness.note(replace(self.witness.event("not_guarded", "training", batch_of(data)), message=reason))
        self.model.train_function = self.original
        return self.original(iter([data]))


def is_hopeless(before: Event, now: Event) -> bool:
    """Whether a step still asks for the same, in smaller slices, and for more than there is when nothing of it runs."""
    same = (before.step, before.asked_bytes, before.where) == (now.step, now.asked_bytes, now.where)
    smaller = now.way.micro_batches > before.way.micro_batches
    return (
        same
        and smaller
        and None not in (now.asked_bytes, now.free_bytes)
        and (now.asked_bytes or 0) > (now.free_bytes or 0)
    )
