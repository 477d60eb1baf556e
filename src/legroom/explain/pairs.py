"""Sizes that are those of all pairs of something: N times N numbers, as distances, kernels and a `vmap` over a whole array make them."""

from math import isqrt

from legroom.explain.story import Story
from legroom.records.diagnosis import Fact
from legroom.units import GIB

LARGE = 4 * GIB
HUGE = 24 * GIB
ROUNDED = 0.0005
ROUND, ROUNDER = 64, 1024  # squares of multiples of them may also be heads of tokens by tokens
WIDTHS = (4, 8, 2)


def pairs_of(failed_bytes: int | None, story: Story) -> tuple[int, list[Fact]] | None:
    """The N whose pairs are asked for: one that the log or its code names, or for a huge request the exact root of it."""
    if failed_bytes is None or failed_bytes < LARGE:
        return None
    for fact in story.all("count"):
        if fact.value % ROUNDER and any(
            abs(fact.value**2 * width - failed_bytes) <= ROUNDED * failed_bytes for width in WIDTHS
        ):
            return fact.value, [fact]
    roots = [isqrt(failed_bytes // width) for width in WIDTHS]
    exact = [root for root, width in zip(roots, WIDTHS, strict=True) if root**2 * width == failed_bytes]
    return (exact[0], []) if failed_bytes >= HUGE and exact and exact[0] % ROUND else None


def text_of_pairs(count: int) -> str:
    return f"It is {count:,} × {count:,} numbers in one array: all pairs at once."
