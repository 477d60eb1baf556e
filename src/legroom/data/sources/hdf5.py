"""HDF5: contiguous datasets are read where they lie in the file; chunked and compressed ones from a scratch file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from legroom.data.sources.files import FileColumn
from legroom.data.sources.options import Options, chosen, names_in, needs
from legroom.data.sources.scratch import rows_of_a_block
from legroom.errors import InputError


def open_hdf5(path: str | Path, options: Options) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise needs("h5py", "data", "HDF5 files") from error
    try:
        with h5py.File(path, "r") as file:
            return group_columns(file, str(path), options)
    except OSError as error:
        raise InputError(f"{path} is no readable HDF5 file: {error}.", "Write the file again.") from error


def group_columns(group: Any, what: str, options: Options) -> Any:
    """The datasets of a file or group, by their names."""
    wanted = names_in(options.columns)
    found: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if hasattr(item, "shape"):
            found[name] = item

    group.visititems(visit)
    named = {
        name: dataset_column(item, options) if wanted is None or name in wanted else None
        for name, item in found.items()
    }
    return chosen(named, options.columns, what)


def dataset_column(dataset: Any, options: Options) -> Any:
    what = f"{dataset.file.filename}[{dataset.name!r}]"
    if not dataset.shape or dataset.dtype.kind in "OV":
        raise InputError(
            f"{what} has no rows of numbers in it.",
            "Name the arrays to train on in `columns`: numbers, with the samples along the first axis.",
        )
    length, shape = int(dataset.shape[0]), tuple(dataset.shape[1:])
    offset = dataset.id.get_offset()
    if offset is not None and dataset.chunks is None and not dataset.external:
        if dataset.file.mode != "r":
            dataset.file.flush()
        column = FileColumn(dataset.file.filename, offset, length, shape, dataset.dtype)
        column.path = what
        return options.by_index(column)
    return options.from_blocks(blocks_of(dataset, what), length, shape, dataset.dtype, what)


def blocks_of(dataset: Any, what: str) -> Iterator[Any]:
    """The rows in steps of whole chunks, so that each is unpacked once."""
    row = dataset.dtype.itemsize
    for size in dataset.shape[1:]:
        row *= int(size)
    chunk = dataset.chunks[0] if dataset.chunks else 1
    step = max(chunk, rows_of_a_block(row) // chunk * chunk)
    for start in range(0, dataset.shape[0], step):
        try:
            yield dataset[start : start + step]
        except OSError as error:
            raise InputError(
                f"Samples {start:,} to {min(start + step, dataset.shape[0]) - 1:,} of {what} could not be read: {error}.",
                "Write the file again.",
            ) from error
