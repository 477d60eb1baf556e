"""Anything with samples, opened: what it is decides which module reads it."""

from collections.abc import Callable
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np

from legroom.data.allocator import give_back
from legroom.data.sources.arrays import ArrayColumn, ValuesColumn
from legroom.data.sources.columns import Columns, Samples, transformed
from legroom.data.sources.files import memmap_column, npy_column
from legroom.data.sources.generators import Serial
from legroom.data.sources.options import Options
from legroom.data.structure import leaves, mapped
from legroom.errors import InputError

TABLES = {".parquet", ".pq", ".arrow", ".feather"}
RECORDS = {".tfrecord", ".tfrecords", ".tfrec"}
KNOWN = (
    "Give arrays (also in tuples and dictionaries), np.memmap, a .npy, .npz, .h5, .zarr, .parquet, .arrow or .tfrecord file,"
    " a folder of images, a sequence, or a generator function."
)


def open_source(source: Any, options: Options) -> Any:
    """A source by index (`Columns` or `Samples`), or a `Serial` one."""
    opened = opened_as_is(source, options)
    if options.notes:  # something was unpacked
        give_back()
    if isinstance(opened, Serial):
        return opened
    if isinstance(opened, Samples):
        opened.held_bytes += options.held_bytes
    else:
        opened = Columns(opened, options.held_bytes, options.notes)
    opened.notes = [*opened.notes, *(note for note in options.notes if note not in opened.notes)]
    if opened.length == 0:
        raise InputError("The source is empty: it has no samples.", "Give one with at least one sample.")
    if options.transform is not None and not is_records(source):
        return transformed(opened, options.transform)
    return opened


def opened_as_is(source: Any, options: Options) -> Any:
    paths = paths_of(source)
    if paths is not None:
        return from_paths(paths, options)
    if isinstance(source, tuple | dict):
        if not list(leaves(source)):
            raise InputError("The source is empty: it has no arrays.", KNOWN)
        return mapped(source, lambda part: one_column(part, options))
    if is_array(source) or (is_store(source) and hasattr(source, "shape")):
        return one_column(source, options)
    if is_store(source):
        return from_store(source, options)
    if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return Samples(len(source), source.__getitem__, lambda index: f"{index} of the {type(source).__name__}")
    if callable(source) or hasattr(source, "__iter__"):
        return Serial(source, options.samples, options.transform)
    raise InputError(f"There are no samples in {type(source).__name__}.", KNOWN)


def paths_of(source: Any) -> list[Path] | None:
    """The files that a path, a pattern or a list of paths names."""
    if isinstance(source, Path):
        return [source]
    if isinstance(source, str):
        return (
            [Path(name) for name in sorted(glob(source))] if any(mark in source for mark in "*?[") else [Path(source)]
        )
    if isinstance(source, list) and source and all(isinstance(item, str | Path) for item in source):
        found = [Path(item) for item in source]
        return found if {path.suffix for path in found} <= TABLES | RECORDS else None
    return None


def is_records(source: Any) -> bool:
    return any(path.suffix in RECORDS for path in (paths_of(source) or [])[:1])


def from_paths(paths: list[Path], options: Options) -> Any:
    missing = [str(path) for path in paths if not path.exists()]
    if missing or not paths:
        raise InputError(f"There is no {missing[0] if missing else 'file of that name'}.", KNOWN)
    path, suffix = paths[0], paths[0].suffix.lower()
    if suffix in TABLES:
        from legroom.data.sources.tables import open_tables

        return open_tables(paths, options)
    if suffix in RECORDS:
        from legroom.data.sources.records import record_samples

        return record_samples(paths, options)
    readers: dict[str, Callable[[Path, Options], Any]] = {
        ".npy": npy,
        ".npz": npz,
        ".h5": hdf5,
        ".hdf5": hdf5,
        ".zarr": zarr,
    }
    if len(paths) == 1 and suffix in readers:
        return readers[suffix](path, options)
    if len(paths) == 1 and path.is_dir():
        from legroom.data.sources.images import image_columns

        return image_columns(path, options)
    raise InputError(f"{path} is of no kind that is known by its name.", KNOWN)


def npy(path: Path, options: Options) -> Any:
    return options.by_index(npy_column(path))


def npz(path: Path, options: Options) -> Any:
    from legroom.data.sources.archives import npz_columns

    return npz_columns(path, options)


def hdf5(path: Path, options: Options) -> Any:
    from legroom.data.sources.hdf5 import open_hdf5

    return open_hdf5(path, options)


def zarr(path: Path, options: Options) -> Any:
    from legroom.data.sources.zarr_store import open_zarr

    return open_zarr(path, options)


def one_column(part: Any, options: Options) -> Any:
    """One of the arrays that a tuple or a dictionary holds."""
    if isinstance(part, np.memmap) and part.ndim:
        return options.by_index(memmap_column(part))
    paths = paths_of(part)
    if paths is not None:
        return from_paths(paths, options)
    if is_store(part):
        return from_store(part, options)
    if isinstance(part, list):
        plain = all(isinstance(item, int | float | np.number) for item in part)
        return ArrayColumn(np.asarray(part)) if plain else ValuesColumn(part)
    if is_array(part):
        array = np.asarray(part)
        if array.ndim == 0:
            raise InputError("A single number has no samples.", KNOWN)
        if array.dtype.kind in "OUS":
            return ValuesColumn(array)
        return ArrayColumn(array)
    if hasattr(part, "__len__") and hasattr(part, "__getitem__"):
        return ValuesColumn(part)
    raise InputError(f"There are no samples to be read by index in {type(part).__name__}.", KNOWN)


def is_array(source: Any) -> bool:
    return isinstance(source, np.ndarray) or (hasattr(source, "__array__") and hasattr(source, "shape"))


def is_store(source: Any) -> bool:
    """An object of h5py, Zarr or Arrow."""
    return type(source).__module__.split(".")[0] in {"h5py", "zarr", "pyarrow"}


def from_store(source: Any, options: Options) -> Any:
    room = type(source).__module__.split(".")[0]
    if room == "h5py":
        from legroom.data.sources.hdf5 import dataset_column, group_columns

        return (
            dataset_column(source, options) if hasattr(source, "shape") else group_columns(source, str(source), options)
        )
    if room == "zarr":
        from legroom.data.sources.zarr_store import zarr_columns

        return zarr_columns(source, str(getattr(source, "store_path", source)), options)
    from legroom.data.sources.tables import arrow_columns, is_arrow_table

    if is_arrow_table(source):
        return arrow_columns(source, options)
    raise InputError(f"{type(source).__name__} of Arrow has no rows to read.", "Give a table or a file.")
