"""How many micro-batches to try next. The peak of k of them is close to a + b/k, so the smallest k that fits is found by drawing
that curve through what is known."""

from math import ceil

from legroom.plans.tried import Tried


def next_count(known: dict[int, Tried], batch: int) -> int | None:
    """The number of micro-batches to try next, or None when the fewest that fit are known, or nothing fits."""
    too_few = max((count for count, found in known.items() if not found.fits), default=0)
    enough = min((count for count, found in known.items() if found.fits and count > too_few), default=None)
    if enough is not None and enough - too_few <= 1:
        return None
    guess = drawn(known)
    if enough is None:
        return None if too_few >= batch else even(min(batch, max(too_few + 1, guess or 2 * too_few)), batch)
    between = [count for count in range(too_few + 1, enough) if even(count, batch) == count]
    if not between:
        return None
    wanted = max(too_few + 1, guess) if guess else (too_few + enough) // 2
    return min(between, key=lambda count: (abs(count - wanted), -count))


def even(count: int, batch: int) -> int:
    """The next count that cuts the batch into equal slices, if one is near: a smaller last slice is a second program to hold."""
    return next((more for more in range(count, min(batch, 2 * count) + 1) if batch % more == 0), count)


def drawn(known: dict[int, Tried]) -> int | None:
    """Where a + b/k through the two points nearest to the limit meets it; with one point, what does not depend on the batch is a."""
    usable = next(iter(known.values())).estimate.usable_bytes
    near = sorted(known, key=lambda count: abs(known[count].estimate.need_bytes - usable))[:2]
    if len(near) == 1:
        estimate = known[near[0]].estimate
        kept = sum(estimate.breakdown.get(name, 0) for name in ("weights", "optimizer", "gradients", "other", "data"))
        a: float = kept + estimate.breakdown.get("weights", 0)  # and one sum of gradients
        b: float = max(0, estimate.need_bytes - kept) * near[0]
    else:
        one, two = sorted(near)
        high_one, high_two = (known[count].estimate.need_bytes for count in (one, two))
        b = (high_one - high_two) / (1 / one - 1 / two)
        a = high_one - b / one
    return ceil(b / (usable - a)) if usable > a and b > 0 else None
