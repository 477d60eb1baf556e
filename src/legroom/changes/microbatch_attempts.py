"""On which made-up samples it is tried whether a model keeps its samples apart: on others where it does not take these."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from legroom.changes.cutting import FEW, MANY, ODD, Place
from legroom.changes.made_up import ABOVE, ROWS, SHARES

STYLES = ("signed", "unit", "binary", ABOVE, SHARES)


@dataclass(frozen=True)
class Rows:
    """How many samples a model is called on, how many of them are the same in both calls, and which of them are a batch of their own, too."""

    count: int
    kept: int
    parts: tuple[Place, ...]


SIX = Rows(ROWS, ROWS // 2, (FEW.cuts[-1], ODD.cuts[-1]))
TWO = Rows(2, 1, ((1, 2),))
IN_FOURS = (Rows(8, 3, ((4, 8),)), Rows(12, 5, ((8, 12),)))  # groups of four are not kept as one


def attempts(x: Any, size: Any) -> Iterator[tuple[Rows, str]]:
    """Six samples with any values, then more of them, as a model may want groups of four, or the batch as it is; then other values."""
    import keras

    fronts = {leaf.shape[0] for leaf in keras.tree.flatten(x) if leaf is not None and len(leaf.shape)}
    batch = fronts.pop() if len(fronts) == 1 else None
    several = [SIX, *IN_FOURS]
    if isinstance(batch, int) and isinstance(size, int) and size < batch <= MANY:
        several.append(Rows(batch, (batch - 1) // 2, ((batch - size, batch),)))
    for style in STYLES:
        yield from ((rows, style) for rows in several)


def is_unknown(x: Any) -> bool:
    """Whether the model trains on batches of a size that is not known while it is traced."""
    import keras

    return any(leaf is not None and leaf.shape[0] is None for leaf in keras.tree.flatten(x))
