"""Samples made into a batch: float64 as float32, values of different lengths filled up with zeros to the longest of the batch.

Samples that are alike go into their batch one by one, so that no second batch of samples is held.
"""

from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from legroom.data.buffers import Buffers
from legroom.data.structure import leaves, mapped, rebuilt
from legroom.errors import InputError

END = object()


def narrow(dtype: Any) -> Any:
    """The dtype that a step is given: float64 becomes float32, and bytes are in this machine's order."""
    plain = np.dtype(dtype)
    return np.dtype(np.float32) if plain == np.float64 else plain.newbyteorder("=")


def collate(samples: Iterable[Any], indices: Any, name: Callable[[int], str], buffers: Buffers) -> Any:
    """One array for each value of the structure, with the samples along the first axis; `indices` are the samples' numbers."""
    coming = iter(samples)
    first = next(coming)
    alike = [as_value(value) for _, value in leaves(first)]
    if not all(isinstance(value, np.ndarray) and value.dtype.kind in "biufc" for value in alike):
        return collate_all([first, *coming], indices, name, buffers)
    columns = [buffers.take((len(indices), *value.shape), narrow(value.dtype)) for value in alike]
    paths, done = [path for path, _ in leaves(first)], 0
    sample = first
    while sample is not END:
        row = list(leaves(sample))
        values = [as_value(value) for _, value in row]
        if [path for path, _ in row] != paths or any(map(differs, values, alike)):
            batch = rebuilt(first, iter(columns))
            before = [mapped(batch, itemgetter(place)) for place in range(done)]
            return collate_all([*before, sample, *coming], indices, name, buffers)
        for column, value in zip(columns, values, strict=True):
            column[done] = value
        sample, done = next(coming, END), done + 1
    return rebuilt(first, (column[:done] for column in columns))


def differs(value: Any, other: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.shape != other.shape or value.dtype != other.dtype


def collate_all(samples: list[Any], indices: Any, name: Callable[[int], str], buffers: Buffers) -> Any:
    """Samples of different lengths and text: all of them are looked at before a batch is made."""
    rows = [list(leaves(sample)) for sample in samples]
    for place, row in enumerate(rows):
        if [path for path, _ in row] != [path for path, _ in rows[0]]:
            raise InputError(
                f"Sample {name(int(indices[place]))} is made otherwise than sample {name(int(indices[0]))}:"
                f" {shown(row)} against {shown(rows[0])}.",
                "Give every sample the same structure.",
            )
    columns = []
    for number, (path, _) in enumerate(rows[0]):
        values = [as_value(row[number][1]) for row in rows]
        columns.append(stacked(values, indices, partial(place_of, name, path), buffers))
    return rebuilt(samples[0], iter(columns))


def place_of(name: Callable[[int], str], path: str, index: int) -> str:
    return f"{name(index)}{path}"


def shown(row: list[tuple[str, Any]]) -> str:
    return ", ".join(path or type(value).__name__ for path, value in row) or "nothing"


def as_value(value: Any) -> Any:
    if isinstance(value, str | bytes):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "US" and array.ndim == 0:
        return array[()]
    return array


def stacked(values: list[Any], indices: Any, name: Callable[[int], str], buffers: Buffers) -> Any:
    if isinstance(values[0], str | bytes):
        out = np.empty(len(values), dtype=object)
        out[:] = values
        return out
    for place, value in enumerate(values):
        if isinstance(value, str | bytes) or value.ndim != values[0].ndim or value.dtype.kind == "O":
            raise InputError(
                f"Sample {name(int(indices[place]))} has no array like the others': {described(value)}"
                f" beside {described(values[0])}.",
                "Samples of a batch need as many axes as each other, and numbers in them.",
            )
    dtype = narrow(np.result_type(*{value.dtype for value in values}))
    shapes = {value.shape for value in values}
    longest = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    out = buffers.take((len(values), *longest), dtype)
    if len(shapes) > 1:
        out.fill(0)
    for place, value in enumerate(values):
        out[(place, *(slice(size) for size in value.shape))] = value
    return out


def described(value: Any) -> str:
    return type(value).__name__ if isinstance(value, str | bytes) else f"{value.dtype} of shape {value.shape}"
