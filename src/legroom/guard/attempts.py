"""One guarded training step in as many attempts as it takes: what a Keras model's steps and a user's own have in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from legroom.engines.out_of_memory import oom_of
from legroom.errors import InputError
from legroom.guard.compiled_step import CompiledStep, asked_by_xla
from legroom.guard.forgetting import forget
from legroom.guard.journal import Witness
from legroom.guard.retry import Ways, gave_up
from legroom.guard.room import Room
from legroom.guard.transaction import NotSeparable, Step, StepFailed
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
class Attempts(ABC):
    """Runs steps, one way or another, until one is done or nothing is left to try."""

    witness: Witness
    options: Options
    room: Room
    ways: Ways
    good: int = 0  # steps since the last change
    runner: Step | None = None
    failure: Event | None = None  # the last one

    @abstractmethod
    def new_runner(self) -> Step:
        """What runs a step the way that is taken now."""

    @abstractmethod
    def copying_runner(self) -> Step:
        """The same for a step whose update cannot be held back."""

    @abstractmethod
    def step_unguarded(self, data: Any, reason: str) -> Any:
        """The step as if there were no guard, from now on."""

    @abstractmethod
    def batch_of(self, data: Any) -> int | None:
        """How many samples there are."""

    def after_change(self) -> None:
        """Steps are run another way from now on."""
        self.good = 0

    def note_update(self, error: BaseException) -> None:
        """An update that did not fit as one graph: it is done op by op."""
        self.witness.note(self.witness.event("out_of_memory", "update", None, oom_of(error), self.ways.way))

    def attempt(self, data: Any) -> Any:
        """One step with this batch, in as many attempts as it takes."""
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
                self.runner = self.copying_runner()
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

    def recover(self, data: Any, phase: Where, error: BaseException | None) -> None:
        """All is as before the step: note what happened, and find another way or give up."""
        fact = None if error is None else oom_of(error)
        forget(error)
        del error
        if fact is not None and fact.asked_bytes is None:
            fact = replace(fact, asked_bytes=asked_by_xla(fact.message))
        before = self.failure
        self.failure = self.witness.event("out_of_memory", phase, self.batch_of(data), fact, self.ways.way)
        self.witness.note(self.failure)
        if before is not None and is_hopeless(before, self.failure):
            self.give_up(self.failure)
        self.find_another_way(self.failure)

    def find_another_way(self, failure: Event) -> None:
        """The next way that may be taken; without one, everything ends here."""
        runner, self.runner = self.runner, None
        if failure.where == "update" or not self.ways.make_smaller(failure.batch):
            self.give_up(failure)
        copying = self.copying_runner()
        if isinstance(runner, type(copying)):
            self.runner = copying
        self.after_change()
        kind: EventKind = "does_not_fit" if isinstance(runner, CompiledStep) else "changed"
        self.witness.note(replace(failure, kind=kind, way=self.ways.way, message=""))

    def give_up(self, failure: Event) -> NoReturn:
        message, hint = refusal(failure, tuple(self.ways.reasons.values()))
        self.witness.note(replace(failure, kind="gave_up", message=message))
        raise gave_up(message, hint)

    def try_larger(self, data: Any) -> None:
        self.good = 0
        if self.ways.make_larger(self.batch_of(data)):
            self.runner = None
            self.after_change()
            self.witness.note(self.witness.event("larger", "", self.batch_of(data), way=self.ways.way))


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
