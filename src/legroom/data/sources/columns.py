"""What a source is to a stream: so many samples, read by index, as batches in a structure of tuples and dictionaries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from legroom.data.buffers import Buffers
from legroom.data.sources.collating import collate
from legroom.data.structure import leaves, mapped
from legroom.errors import InputError, LegroomError


class Column(Protocol):
    """Rows of one shape and dtype, read into an array."""

    length: int
    shape: tuple[int, ...]
    dtype: Any
    reading_bytes: int  # beside the batch itself, while it is read

    def read_into(self, indices: Any, out: Any) -> None: ...

    def name(self, index: int) -> str: ...


class Loose(Protocol):
    """Values of any shape, read one by one."""

    length: int

    def sample(self, index: int) -> Any: ...

    def name(self, index: int) -> str: ...


class Source(Protocol):
    """Samples by index."""

    length: int
    held_bytes: int
    notes: list[str]

    def batch(self, indices: Any, buffers: Buffers) -> Any: ...

    def name(self, index: int) -> str: ...

    def reading_bytes(self) -> int: ...


class Columns:
    """A structure of columns of the same length."""

    def __init__(self, columns: Any, held_bytes: int = 0, notes: Sequence[str] = ()) -> None:
        found = list(leaves(columns))
        lengths = {path or "the data": column.length for path, column in found}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{path}: {length:,}" for path, length in lengths.items())
            raise InputError(
                f"The parts of the data differ in length ({listed}).", "Give as many labels as there are samples."
            )
        self.columns, self.held_bytes, self.notes = columns, held_bytes, list(notes)
        self.length = found[0][1].length if found else 0
        self.first = found[0][1] if found else None
        self.direct = all(hasattr(column, "read_into") and not hasattr(column, "unpacked_bytes") for _, column in found)

    def batch(self, indices: Any, buffers: Buffers) -> Any:
        def read(column: Any) -> Any:
            if hasattr(column, "read_into"):
                out = buffers.take((len(indices), *column.shape), column.dtype)
                column.read_into(indices, out)
                return out
            return collate((named(column.sample, column.name, int(i)) for i in indices), indices, column.name, buffers)

        return mapped(self.columns, read)

    def name(self, index: int) -> str:
        return "" if self.first is None else str(self.first.name(index))

    def reading_bytes(self) -> int:
        return sum(getattr(column, "reading_bytes", 0) for _, column in leaves(self.columns))


class Samples:
    """Whole samples, each got by its index, then made into a batch; also columns with a function over their samples."""

    def __init__(self, length: int, get: Callable[[int], Any], name: Callable[[int], str], held_bytes: int = 0) -> None:
        self.length, self.get, self.name, self.held_bytes = length, get, name, held_bytes
        self.notes: list[str] = []

    @property
    def work(self) -> Any:
        """What a worker process runs for each sample, of what `rows` gives it."""
        return Each(self.get)

    def rows(self, indices: Any) -> Any:
        return indices

    def batch(self, indices: Any, buffers: Buffers) -> Any:
        return collate((named(self.get, self.name, int(i)) for i in indices), indices, self.name, buffers)

    def reading_bytes(self) -> int:
        return 0


class Transformed:
    """A source with a function over each of its samples; its rows are read together."""

    def __init__(self, source: Any, transform: Callable[[Any], Any]) -> None:
        self.source, self.transform, self.pool = source, transform, Buffers()
        self.length, self.held_bytes, self.notes, self.name = (
            source.length,
            source.held_bytes,
            source.notes,
            source.name,
        )

    @property
    def work(self) -> Any:
        return Applied(self.transform)

    def rows(self, indices: Any) -> Any:
        return self.source.batch(indices, self.pool)

    def batch(self, indices: Any, buffers: Buffers) -> Any:
        rows = self.rows(indices)

        def get(place: int) -> Any:
            return self.transform(mapped(rows, lambda array: array[place]))

        samples = (named(get, lambda at: self.name(int(indices[at])), place) for place in range(len(indices)))
        return collate(samples, indices, self.name, buffers)

    def reading_bytes(self) -> int:
        return int(self.source.reading_bytes())


@dataclass(frozen=True, slots=True)
class Each:
    """Samples got by their numbers."""

    get: Callable[[int], Any]

    def sample(self, given: Any, place: int) -> Any:
        return self.get(int(given[place]))


@dataclass(frozen=True, slots=True)
class Applied:
    """A function over rows that were read."""

    transform: Callable[[Any], Any]

    def sample(self, given: Any, place: int) -> Any:
        return self.transform(mapped(given, lambda array: array[place]))


@dataclass(frozen=True, slots=True)
class Then:
    """One function after another; unlike a lambda, it can be sent to another process."""

    first: Callable[[int], Any]
    second: Callable[[Any], Any]

    def __call__(self, index: int) -> Any:
        return self.second(self.first(index))


def transformed(source: Any, transform: Callable[[Any], Any]) -> Any:
    """The source with a function over each of its samples."""
    if isinstance(source, Samples):
        inner = source.get
        return Samples(source.length, Then(inner, transform), source.name, source.held_bytes)
    return Transformed(source, transform)


def named(get: Callable[[int], Any], name: Callable[[int], str], index: int) -> Any:
    """A sample, or an error that says which one it was."""
    try:
        return get(index)
    except LegroomError:
        raise
    except Exception as error:
        raise InputError(
            f"Sample {name(index)} could not be read: {type(error).__name__}: {error}.",
            "No step has seen a part of its batch. Repair or leave out the sample, then go on from the stream's state.",
        ) from error
