"""The largest batch that trains on this CPU, by really running batches.

First in more room than there is to be, so that none runs out: peaks lie close to a line in the batch, and each batch that is run makes
the next guess better, until what is 1% larger has been measured to need more than the budget. What is found is then run under the budget
itself, for more steps, since threads run a step in another order now and then. A pool that is nearly full is cut in other ways than a
wide one, so there it may need less, or more: it is made larger, or smaller, until it trains and what is 1% larger runs out of memory.
Of that, 99% is the answer, once it has trained in more processes, too: each starts a step's first operations in an order of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from legroom.errors import EngineError, InputError
from legroom.front.max_batch import MAX_COMPILATIONS, ceiling, next_batch
from legroom.records.rehearsal import Rehearsal
from legroom.units import format_bytes

STEP = 1.01
SURE_STEPS = 24
AGAIN = 3  # more processes that the answer must train in
BELOW = 0.99  # of what trained, in whole samples
NO_PROMISE = (
    f"It trained in {AGAIN} processes. With several threads a step's peak moves from run to run, so leave some room, or take what "
    "`legroom estimate --max-batch` says without --rehearse, which must hold in any order."
)
MORE_ROOM = 2
TRIES = 12
STRIDE = 0.01  # the first step up or down under the budget itself; the next is twice as large

RunBatch = Callable[[int | None, int, int], Rehearsal]  # with a batch, under a limit, for so many steps


@dataclass(frozen=True, slots=True)
class Measured:
    """A batch that was run, as `next_batch` wants to know it."""

    need_bytes: int
    usable_bytes: int
    breakdown: dict[str, int] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        return self.need_bytes <= self.usable_bytes


def find_largest(run: RunBatch, budget_bytes: int, room_bytes: int, steps: int) -> Rehearsal:
    """The rehearsal of the largest batch, with `max_batch`; 0, and the rehearsal of one sample, where not even that fits."""
    wide = max(budget_bytes, min(room_bytes, MORE_ROOM * budget_bytes))
    first = run(None, wide, steps)
    if first.batch is None:
        raise EngineError(
            "The batch size of this step is not known, so no other can be tried.",
            "Pass the batch as an argument of the step.",
        )
    if first.out_of_memory is not None and first.out_of_memory.during == "building":
        raise InputError(
            f"The model or its data do not fit into {format_bytes(wide)}: no batch does.", "Give it a larger --budget."
        )
    known = {first.batch: measured(first, budget_bytes)}
    for _ in range(MAX_COMPILATIONS):
        batch = next_batch(known, step=STEP)
        if batch is None:
            break
        known[batch] = measured(run(batch, wide, steps), budget_bytes)
    found = largest_under(run, budget_bytes, known)
    return confirmed(run, budget_bytes, round(BELOW * found.max_batch)) if found.max_batch else found


def confirmed(run: RunBatch, budget_bytes: int, batch: int) -> Rehearsal:
    """The rehearsal of that batch, or of the next smaller one, that trains in each of some processes."""
    while True:
        for _ in range(AGAIN):
            found = run(batch, budget_bytes, SURE_STEPS)
            if not found.fits:
                break
        else:
            return replace(found, max_batch=batch, notes=(*found.notes, NO_PROMISE))
        if batch <= 1:
            return replace(found, max_batch=0)
        batch = min(batch - 1, round(BELOW * batch))


def largest_under(run: RunBatch, budget_bytes: int, known: dict[int, Measured]) -> Rehearsal:
    """The largest that trains under the budget itself, looked for around the largest of those that fitted."""
    batch: int | None = max((batch for batch, found in known.items() if found.fits), default=1)
    best: Rehearsal | None = None
    high: int | None = None
    tries = 0
    while batch is not None:
        found = run(batch, budget_bytes, SURE_STEPS)
        tries += 1
        if found.fits:
            best = replace(found, max_batch=batch)
        elif batch == 1:
            return replace(found, max_batch=0)
        else:
            high = batch
        batch = next_try(best.max_batch if best else None, high, tries)
    assert best is not None
    return best


def next_try(low: int | None, high: int | None, tries: int) -> int | None:
    """The batch to run next under the budget itself, above the largest that trained and below the smallest that did not; None: it is settled."""
    stride = STRIDE * 2 ** (tries - 1)
    if low is None:
        assert high is not None
        return max(1, min(high - 1, int(high * (1 - min(stride, 0.5)))))
    if tries >= TRIES or (high is not None and high <= ceiling(low, STEP)):
        return None
    return max(low + 1, int(low * (1 + stride)) if high is None else (low + high) // 2)


def measured(found: Rehearsal, budget_bytes: int) -> Measured:
    """One that ran out needs more than it was given; how much is not known."""
    if not found.fits:
        return Measured(max(found.limit_bytes, budget_bytes) + 1, budget_bytes)
    need = max(found.peak_bytes or 0, found.first_step_peak_bytes or 0)
    return Measured(need, budget_bytes, {"other": found.resident_bytes or 0})
