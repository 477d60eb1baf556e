"""The largest batch that fits, found with few compilations.

The peak is close to a straight line in the batch, but not always rising: XLA rematerialises when a card gets tight. So a
batch counts as fitting only when it was compiled and fitted, and the search ends when what lies between it and one that was
compiled and did not fit is at most 1% larger. Where there is less time, a line through two that were compiled may say that.

A simulated allocator may find no room though there is enough of it, in pieces. Of that the line knows nothing: the search then goes
down in strides that grow, and halves.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import floor
from typing import Protocol

from legroom.errors import EngineError, LegroomError
from legroom.records import Estimate

MAX_COMPILATIONS = 6
MORE_WHERE_TORN = 6  # simulations are cheaper than compilations, and halving takes more of them than a line
STEP = 1.01


class Known(Protocol):
    """What is known of one batch: an Estimate, or what a rehearsal has measured."""

    @property
    def fits(self) -> bool: ...

    @property
    def need_bytes(self) -> int: ...

    @property
    def usable_bytes(self) -> int: ...

    @property
    def breakdown(self) -> Mapping[str, int]: ...


def find_max_batch(at: Callable[[int], Estimate], first: Estimate, *, quick: bool = False) -> Estimate:
    """`first` with `max_batch` filled in; 0 when not even one example fits.

    `quick`: that a larger one would not fit is taken from the line through two that were compiled.
    """
    if first.batch is None:
        raise EngineError(
            "The batch size of this step is not known, so no other can be tried.",
            "Pass the batch as an argument of the step.",
        )
    known: dict[int, Estimate] = {first.batch: first}
    while len(known) <= MAX_COMPILATIONS + min(MORE_WHERE_TORN, 2 * torn(known)):
        batch = next_batch(known, quick=quick)
        if batch is None:
            break
        try:
            known[batch] = at(batch)
        except LegroomError as error:
            return settle(first, known, f"the search for the largest batch ended at batch {batch}: {error.message}")
    unsettled = next_batch(known, quick=quick) is not None
    return settle(
        first,
        known,
        "the search for the largest batch ran out of compilations: a larger one may fit" if unsettled else None,
    )


def settle(first: Estimate, known: dict[int, Estimate], note: str | None) -> Estimate:
    found = max((batch for batch, estimate in known.items() if estimate.fits), default=0)
    return replace(first, max_batch=found, notes=first.notes + ((note,) if note else ()))


def next_batch(known: Mapping[int, Known], *, quick: bool = False, step: float = STEP) -> int | None:
    """The batch to compile next, or None when the answer is settled to that step."""
    low = max((batch for batch, estimate in known.items() if estimate.fits), default=0)
    high = min((batch for batch in known if batch > low), default=None)
    if high is not None and high <= ceiling(low, step):
        return None
    guess = interpolate(known)
    if torn(known) and high is not None and (guess is None or guess >= floor(high / step)):
        stride: float = step ** (2 ** torn(known))
        return max(1, (low + high) // 2, floor(high / stride))
    if quick and low and len(known) > 1 and guess is not None and guess < ceiling(low, step):
        return None
    if high is None:
        return max(guess or 2 * low, ceiling(low, step))
    if guess is None:
        return (low + high) // 2
    if guess <= ceiling(low, step):
        return ceiling(low, step) if low else max(1, min(guess, high - 1))
    return min(guess, max(low + 1, floor(high / step)))


def torn(known: Mapping[int, Known]) -> int:
    """How many did not fit though they need no more than there is."""
    return sum(not estimate.fits and estimate.need_bytes <= estimate.usable_bytes for estimate in known.values())


def ceiling(batch: int, step: float = STEP) -> int:
    """The largest batch that counts as next to this one: no other between them is larger than this by more than a step."""
    return floor(batch * step) + 1


def interpolate(known: Mapping[int, Known]) -> int | None:
    """Where the line through what is known meets the card's limit: the two points nearest to it, or one and what is fixed.

    None when the two do not rise, as XLA's rematerialisation makes it happen: nothing can be drawn from them.
    """
    limit = next(iter(known.values())).usable_bytes
    near = sorted(known, key=lambda batch: abs(known[batch].need_bytes - limit))[:2]
    if len(near) == 1:
        batch = near[0]
        fixed = fixed_bytes(known[batch])
        slope = (known[batch].need_bytes - fixed) / batch
        return max(1, floor((limit - fixed) / slope)) if slope > 0 else None
    one, two = sorted(near)
    rise = known[two].need_bytes - known[one].need_bytes
    if rise <= 0:
        return None
    return max(1, floor(one + (limit - known[one].need_bytes) * (two - one) / rise))


def fixed_bytes(estimate: Known) -> int:
    """What does not grow with the batch."""
    return sum(estimate.breakdown.get(name, 0) for name in ("weights", "optimizer", "gradients", "other", "data"))
