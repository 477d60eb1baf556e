"""Samples and batches are nested tuples and dictionaries; these walk over them. Lists are values: a list of numbers is one."""

from collections.abc import Callable, Iterator
from typing import Any


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value with its place, as in `['image']` or `[0]['text']`."""
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], f"{path}[{key!r}]")
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from leaves(item, f"{path}[{number}]")
    else:
        yield path, value


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure with each value changed."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(mapped(item, change) for item in value)
    return change(value)


def rebuilt(value: Any, values: Iterator[Any]) -> Any:
    """The same structure with other values, taken in order."""
    return mapped(value, lambda _: next(values))
