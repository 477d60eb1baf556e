"""How sources are to be opened, and what opening them has taken."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from legroom.data.sources.arrays import ArrayColumn
from legroom.data.sources.scratch import Layout, scratch_column
from legroom.errors import InputError, MissingError
from legroom.units import MIB, format_bytes

UNPACKING_LEAVES_BYTES = 8 * MIB
SMALL_SHARE = 16  # a column of at most this part of the budget is held whole: labels, mostly


@dataclass(slots=True)
class Options:
    """What the user asked for, and the books of what is held and said."""

    budget_bytes: int
    columns: Any = None
    transform: Callable[[Any], Any] | None = None
    image_size: tuple[int, int] | None = None
    samples: int | None = None
    scratch: str | Path | None = None
    source: str = "the data"  # its name in errors
    held_bytes: int = 0
    unpacked: bool = False
    notes: list[str] = field(default_factory=list)

    def room_for(self, nbytes: int) -> bool:
        """Whether so little may be held whole; it is then counted."""
        if nbytes > self.budget_bytes // SMALL_SHARE or self.held_bytes + nbytes > self.budget_bytes // 4:
            return False
        self.held_bytes += nbytes
        return True

    def by_index(self, column: Any) -> Any:
        """A file's column as it is best read: whole if it is small."""
        nbytes = getattr(column, "nbytes", None)
        if nbytes is None or not self.room_for(nbytes):
            return column
        rows = np.empty((column.length, *column.shape), column.dtype)
        column.read_into(np.arange(column.length), rows)
        return ArrayColumn(rows, column.name(0).removeprefix("0"))

    def from_blocks(self, blocks: Any, length: int, shape: tuple[int, ...], dtype: Any, what: str) -> Any:
        """A column that can only be read in blocks: held whole if it is small, else written to a scratch file."""
        layout = Layout(length, shape, dtype, what)
        if self.room_for(layout.nbytes):
            rows, done = np.empty((length, *shape), dtype), 0
            for block in blocks:
                rows[done : done + len(block)] = block
                done += len(block)
            if done < length:
                raise InputError(f"{what} ended early: {done:,} of {length:,} rows.", "Write the file again.")
            return ArrayColumn(rows, f" of {what}")
        self.notes.append(
            f"{what} has no quick access by index: written once to a scratch file, {format_bytes(layout.nbytes)}"
        )
        if not self.unpacked:  # what a library's threads and allocators keep of unpacking
            self.held_bytes += min(UNPACKING_LEAVES_BYTES, self.budget_bytes // 4)
            self.unpacked = True
        return scratch_column(blocks, layout, self.scratch)


def chosen(named: dict[str, Any], wanted: Any, what: str) -> Any:
    """The columns in the structure of names that was asked for: `("image", "label")`, or all of them."""
    if not named:
        raise InputError(f"{what} has no arrays in it.", "Give a file with samples.")
    if wanted is None:
        ordinary = [name for name in ("x", "y", "sample_weight") if name in named]
        if ordinary == sorted(named, key=("x", "y", "sample_weight", *named).index):
            return (
                tuple(named[name] for name in ordinary)
                if len(ordinary) > 1
                else named["x"]
                if ordinary == ["x"]
                else named
            )
        return named if len(named) > 1 else next(iter(named.values()))
    from legroom.data.structure import mapped

    def find(name: Any) -> Any:
        if name not in named:
            raise InputError(
                f"{what} has no {name!r}; it has {', '.join(map(repr, named))}.", "Name those in `columns`."
            )
        return named[name]

    return mapped(wanted, find)


def names_in(wanted: Any) -> list[str] | None:
    """The names that a choice of columns mentions; None for all."""
    from legroom.data.structure import leaves

    return None if wanted is None else [name for _, name in leaves(wanted)]


def needs(module: str, extra: str, what: str) -> MissingError:
    return MissingError(f"{what} are read with {module}, which is not installed.", f"pip install 'legroom[{extra}]'")
