"""An Alternative: one change to a model itself, which only its author can make. Legroom says what it would take, and leaves it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Alternative:
    """`text` says it, as "if …"; `size` is an input's on each side, or a layer's width."""

    kind: Literal["pooling", "input", "width"]
    layer: str
    size: tuple[int, ...]
    text: str
