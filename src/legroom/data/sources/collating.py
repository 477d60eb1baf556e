"""Samples made into a batch: float64 as float32, values of different lengths filled up with zeros to the longest of the batch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from legroom.data.buffers import Buffers
from legroom.data.structure import leaves, rebuilt
from legroom.errors import InputError


def narrow(dtype: Any) -> Any:
    """The dtype that a step is given: float64 becomes float32, and bytes are in this machine's order."""
    plain = np.dtype(dtype)
    return np.dtype(np.float32) if plain == np.float64 else plain.newbyteorder("=")


def collate(samples: list[Any], indices: Any, name: Callable[[int], str], buffers: Buffers) -> Any:
    """One array for each value of the structure, with the samples along the first axis."""
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
