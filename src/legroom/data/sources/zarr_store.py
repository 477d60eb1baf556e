"""Zarr: arrays in chunks, each read once, whole, into a scratch file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from legroom.data.sources.options import Options, chosen, names_in, needs
from legroom.errors import InputError


def open_zarr(path: str | Path, options: Options) -> Any:
    try:
        import zarr
    except ImportError as error:
        raise needs("zarr", "data", "Zarr stores") from error
    try:
        opened = zarr.open(str(path), mode="r")
    except Exception as error:  # zarr's own classes of errors differ between its versions
        raise InputError(f"{path} is no readable Zarr store: {error}.", "Write it again.") from error
    return zarr_columns(opened, str(path), options)


def zarr_columns(opened: Any, what: str, options: Options) -> Any:
    if hasattr(opened, "chunks"):
        return array_column(opened, what, options)
    wanted = names_in(options.columns)
    named = {
        name: array_column(array, f"{what}[{name!r}]", options) if wanted is None or name in wanted else None
        for name, array in opened.arrays()
    }
    return chosen(named, options.columns, what)


def array_column(array: Any, what: str, options: Options) -> Any:
    if not array.shape or array.dtype.kind in "OTV":
        raise InputError(
            f"{what} has no rows of numbers in it.",
            "Name the arrays to train on in `columns`: numbers, with the samples along the first axis.",
        )
    length, shape = int(array.shape[0]), tuple(array.shape[1:])
    return options.from_blocks(blocks_of(array, what), length, shape, array.dtype, what)


def blocks_of(array: Any, what: str) -> Iterator[Any]:
    import zarr

    step = int(array.chunks[0])
    for start in range(0, array.shape[0], step):
        try:
            with zarr.config.set({"async.concurrency": 1}):  # else many chunks are unpacked at once
                block = array[start : start + step]
            yield block
        except Exception as error:  # of the store, of a codec
            raise InputError(
                f"Samples {start:,} to {min(start + step, array.shape[0]) - 1:,} of {what} could not be read: {error}.",
                "Write the store again.",
            ) from error
