"""The rows that a training step is tried out on where they are made up."""

from collections.abc import Callable
from functools import partial
from typing import Any

from legroom.changes.made_up import IGNORED, ROWS, random_like, with_mark


def made_up(batch: list[Any], style: str | float, rows: int = ROWS) -> list[Any]:
    """A few rows like these; with a number, that is in place of some entries, more of them in some rows than in others."""
    if isinstance(style, str):
        return list(random_like(batch, style, rows=rows))
    filled, chosen = random_like(batch, "unit", rows=rows), random_like(batch, "binary", 1, rows)
    inputs = 1 if style != style else 0  # noqa: PLR0124 - NaN: no model takes it for an input, which mostly comes first
    marked = zip(filled[inputs:], chosen[inputs:], strict=True)
    return [*filled[:inputs], *(with_mark(values, marks, style) for values, marks in marked)]


def style_of(make: Callable[[], list[Any]]) -> Any:
    return make.args[-1] if isinstance(make, partial) else None


def told_by(make: Callable[[], list[Any]]) -> set[float]:
    """The marks in these data."""
    style = style_of(make)
    return {style} if isinstance(style, float) else {0.0, 1.0} if style == "binary" else set()


def is_far(make: Callable[[], list[Any]]) -> bool:
    """Whether its marks are so large that rounding counts, as inputs; a mean that leaves them out differs by far more."""
    style = style_of(make)
    return isinstance(style, float) and style != IGNORED[0]
