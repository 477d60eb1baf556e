"""The largest batches that a Planning names: as it is, and with the chosen plan's actions done."""

from dataclasses import replace

from legroom.front.estimating import Estimator
from legroom.front.max_batch import find_max_batch
from legroom.front.source import Say
from legroom.records import Estimate
from legroom.records.plan import Action, Planning

Known = dict[tuple[Action, ...], Estimate]  # what was estimated in the search, by what was done


def with_largest_batches(found: Planning, estimator: Estimator, known: Known, say: Say) -> Planning:
    """Both filled in, as far as there is a batch to change. The actions stay: the same blocks, as many micro-batches."""
    if known[()].batch is None:
        return found
    say("looking for the largest batch as it is")
    found, largest = search(found, estimator, known[()], "as it is")
    found = replace(found, max_batch=largest)
    if found.best is None:
        return found
    if not found.best.actions:
        return replace(found, max_batch_planned=largest)
    say("looking for the largest batch with the plan")
    estimator.change(found.best.actions)
    try:
        found, planned = search(found, estimator, known[found.best.actions], "with the plan")
    finally:
        estimator.change(())
    return replace(found, max_batch_planned=planned)


def search(found: Planning, estimator: Estimator, first: Estimate, how: str) -> tuple[Planning, int | None]:
    largest = find_max_batch(estimator.at, first)
    more = tuple(f"{how}: {note}" for note in largest.notes if note not in first.notes)
    return replace(found, notes=(*found.notes, *more)), largest.max_batch
