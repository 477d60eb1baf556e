"""The largest batches that a Planning names: as it is, and with the chosen plan's actions done."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

from legroom.front.estimating import Estimator
from legroom.front.max_batch import find_max_batch
from legroom.front.source import Say
from legroom.records import Estimate
from legroom.records.plan import Action, Planning

Known = dict[tuple[Action, ...], Estimate]  # what was estimated in the search, by what was done
T = TypeVar("T")


class Later(Generic[T]):
    """Something that is being worked out in a thread, which does not keep the program from ending."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.outcome: T | BaseException | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            self.outcome = self.work()
        except BaseException as error:  # noqa: BLE001 - raised again for whoever asks
            self.outcome = error

    def result(self) -> T:
        self.thread.join()
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome  # type: ignore[return-value]


class Largest:
    """Looks for both. A step in a process of its own is asked for the first while the plans are still searched."""

    def __init__(self, estimator: Estimator, say: Say) -> None:
        self.estimator = estimator
        self.say = say
        self.later: Later[Estimate] | None = None

    def start(self, plain: Estimate) -> None:
        """The step as it is has been estimated."""
        if plain.batch is not None and self.estimator.source.is_elsewhere and self.later is None:
            self.later = Later(lambda: self.search_beside(plain))

    def search_beside(self, plain: Estimate) -> Estimate:
        with self.estimator.beside() as other:
            return find_max_batch(other.at, plain, quick=True)

    def fill_in(self, found: Planning, known: Known) -> Planning:
        """Both, as far as there is a batch to change. The actions stay: the same blocks, as many micro-batches."""
        plain, best = known[()], found.best
        if plain.batch is None:
            return found
        planned = self.with_plan(best.actions, known) if best is not None and best.actions else None
        self.say("looking for the largest batch as it is")
        largest = (
            self.later.result() if self.later is not None else find_max_batch(self.estimator.at, plain, quick=True)
        )
        found = replace(noted(found, largest, plain, "as it is"), max_batch=largest.max_batch)
        if best is None:
            return found
        if planned is None:
            return replace(found, max_batch_planned=largest.max_batch)
        first = known[best.actions]
        return replace(noted(found, planned, first, "with the plan"), max_batch_planned=planned.max_batch)

    def with_plan(self, actions: tuple[Action, ...], known: Known) -> Estimate:
        self.say("looking for the largest batch with the plan")
        self.estimator.change(actions)
        try:
            return find_max_batch(self.estimator.at, known[actions], quick=True)
        finally:
            self.estimator.change(())


def noted(found: Planning, largest: Estimate, first: Estimate, how: str) -> Planning:
    more = tuple(f"{how}: {note}" for note in largest.notes if note not in first.notes)
    return replace(found, notes=(*found.notes, *more))
