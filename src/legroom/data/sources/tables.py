"""Parquet and Arrow files: columns unpacked once, a few rows at a time, into scratch files.

Numbers and lists of one length become arrays, lists of different lengths and text become values that are padded per batch.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from legroom.data.sources.options import Options, chosen, names_in, needs
from legroom.data.sources.ragged import ragged_columns
from legroom.errors import InputError
from legroom.units import MIB

Batches = Callable[[list[str] | None], Iterator[Any]]
UNPACKED_BYTES = MIB  # that are unpacked at a time; unpacking takes several times as much
MOST_ROWS = 4096


def open_tables(paths: list[Path], options: Options) -> Any:
    try:
        import pyarrow as arrow
    except ImportError as error:
        raise needs("pyarrow", "data", "Parquet and Arrow files") from error

    def batches(names: list[str] | None) -> Iterator[Any]:
        for path in paths:
            try:
                yield from file_batches(path, names)
            except (arrow.ArrowInvalid, OSError) as error:
                raise InputError(f"{path} could not be read: {error}.", "Write the file again.") from error

    before = arrow.default_memory_pool()
    arrow.set_memory_pool(arrow.system_memory_pool())  # Arrow's own pools keep what was freed
    try:
        return table_columns(batches, ", ".join(map(str, paths[:2])) + (" …" if len(paths) > 2 else ""), options)
    finally:
        arrow.set_memory_pool(before)


def file_batches(path: Path, names: list[str] | None) -> Iterator[Any]:
    import pyarrow as arrow

    if path.suffix in {".parquet", ".pq"}:
        from pyarrow import parquet

        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=UNPACKED_BYTES) as file:
            stored = sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups))
            size = rows_at_once(stored, file.metadata.num_rows)
            yield from file.iter_batches(batch_size=size, columns=names, use_threads=False)
        return
    with arrow.OSFile(str(path)) as source, arrow.ipc.open_file(source) as file:
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            whole = batch if names is None else batch.select(names)
            size = rows_at_once(whole.nbytes, whole.num_rows)
            for start in range(0, whole.num_rows, size):
                yield whole.slice(start, size)


def rows_at_once(size_bytes: int, rows: int) -> int:
    return max(1, min(MOST_ROWS, UNPACKED_BYTES * max(1, rows) // max(1, size_bytes)))


def table_columns(batches: Batches, what: str, options: Options) -> Any:
    """One pass counts the rows and looks at the first ones, then one pass for each column writes it."""
    options.source = what
    first = next(batches(None), None)
    if first is None or not first.num_rows:
        raise InputError(f"{what} has no rows.", "Give a file with samples.")
    names = list(first.schema.names)
    wanted = names_in(options.columns) or names
    counted = next((name for name in wanted if name in names), names[0])
    length = sum(batch.num_rows for batch in batches([counted]))
    named = dict.fromkeys(names)
    for name in wanted:
        if name in names:
            named[name] = column(batches, name, first, length, options)
    return chosen(named, options.columns, what)


def column(batches: Batches, name: str, first: Any, length: int, options: Options) -> Any:
    import pyarrow as arrow

    kind, what = first.schema.field(name).type, f"{options.source}[{name!r}]"
    if arrow.types.is_fixed_size_list(kind) or not (
        arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or text_like(kind)
    ):
        sample = dense(first.column(name), 0, what)
        blocks = numbered(batches, name, lambda values, start: dense(values, start, what))
        return options.from_blocks(blocks, length, tuple(sample.shape[1:]), sample.dtype, what)
    return ragged_columns(numbered(batches, name, lambda values, _: values), text_like(kind), length, what, options)


def numbered(batches: Any, name: str, change: Callable[[Any, int], Any]) -> Iterator[Any]:
    start = 0
    for batch in batches([name]):
        yield change(batch.column(name), start)
        start += batch.num_rows


def text_like(kind: Any) -> bool:
    import pyarrow as arrow

    types = arrow.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )


def dense(values: Any, start: int, what: str) -> Any:
    """Rows as an array: numbers, or lists of one length."""
    if values.null_count:
        row = next(place for place, item in enumerate(values) if not item.is_valid)
        raise InputError(f"Row {start + row:,} of {what} is null.", "Fill or leave out the rows without a value.")
    size = getattr(values.type, "list_size", None)
    inner = values.flatten() if size is not None else values
    array = inner.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"{what} has {values.type} in it, and no numbers.", "Name the columns to train on in `columns`."
        )
    return array if size is None else array.reshape(-1, size)


def is_arrow_table(source: Any) -> bool:
    return type(source).__module__.startswith("pyarrow") and hasattr(source, "to_batches")


def arrow_columns(table: Any, options: Options) -> Any:
    """A table that is in memory already."""

    def batches(names: list[str] | None) -> Iterator[Any]:
        chosen_part = table if names is None else table.select(names)
        yield from chosen_part.to_batches(max_chunksize=rows_at_once(table.nbytes, table.num_rows))

    return table_columns(batches, "the table", options)


def as_bytes(values: Any) -> tuple[Any, Any]:
    """Text as the bytes of all rows, and how many each has."""
    encoded = [item.as_buffer().to_pybytes() if item.is_valid else b"" for item in values]
    return np.frombuffer(b"".join(encoded), np.uint8), np.array([len(item) for item in encoded], np.int64)
