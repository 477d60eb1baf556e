"""The largest batch that trains on this CPU, by really running batches: in more room than there is to be, so that none runs out.

Peaks lie close to a line in the batch. Each batch that is run makes the next guess better, and the search ends when what is 1%
larger has been measured to need more than the budget. What is found is then run under the budget itself, for more steps, since
threads run a step in another order now and then; only if that fails is it made smaller.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from legroom.errors import EngineError, InputError
from legroom.front.max_batch import MAX_COMPILATIONS, next_batch
from legroom.records.rehearsal import Rehearsal
from legroom.units import format_bytes

STEP = 1.01
SURE_STEPS = 12
MORE_ROOM = 2
TRIES = 4

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
    return verified(run, budget_bytes, known)


def verified(run: RunBatch, budget_bytes: int, known: dict[int, Measured]) -> Rehearsal:
    """The largest of those that fitted, run under the budget itself; should it fail, a little smaller, then half as large."""
    batch = max((batch for batch, found in known.items() if found.fits), default=1)
    failed = 0
    while True:
        found = run(batch, budget_bytes, SURE_STEPS)
        if found.fits or batch == 1:
            return replace(found, max_batch=batch if found.fits else 0)
        failed += 1
        batch = max(1, min(batch - 1, int(batch / STEP)) if failed < TRIES else batch // 2)


def measured(found: Rehearsal, budget_bytes: int) -> Measured:
    """One that ran out needs more than it was given; how much is not known."""
    if not found.fits:
        return Measured(max(found.limit_bytes, budget_bytes) + 1, budget_bytes)
    need = max(found.peak_bytes or 0, found.first_step_peak_bytes or 0)
    return Measured(need, budget_bytes, {"other": found.resident_bytes or 0})
