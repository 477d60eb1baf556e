"""What a layer returns: tensors, which go through its block, and all else, which goes round it as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from legroom.errors import InputError

PLACE = object()  # of a tensor
DEEPEST = 6


def tensors_in(returned: Any) -> list[Any]:
    import keras

    return [leaf for leaf in keras.tree.flatten(returned) if keras.ops.is_tensor(leaf)]


def template_of(name: str, returned: Any, given: Sequence[Any]) -> Any:
    """What was returned, with places instead of tensors; `given` are the leaves of the arguments, which may be handed on."""
    import keras

    leaves = keras.tree.flatten(returned)
    for leaf in leaves:
        if not keras.ops.is_tensor(leaf) and not any(leaf is one for one in given) and hides_tensors(leaf):
            raise InputError(
                f"The block {name!r} cannot be recomputed: it returns a {type(leaf).__name__} that holds tensors, whose gradient would be lost.",
                "Return them in a tuple, list or dict, or leave that layer out of the blocks.",
            )
    return keras.tree.pack_sequence_as(returned, [PLACE if keras.ops.is_tensor(leaf) else leaf for leaf in leaves])


def filled(template: Any, tensors: Sequence[Any]) -> Any:
    import keras

    rest = iter(tensors)
    leaves = [next(rest) if leaf is PLACE else leaf for leaf in keras.tree.flatten(template)]
    return keras.tree.pack_sequence_as(template, leaves)


def hides_tensors(value: Any, depth: int = 0) -> bool:
    """Whether an object of the user's, or a function's closure, has tensors in it; layers and variables speak for themselves."""
    import keras

    if keras.ops.is_tensor(value):
        return True
    if depth > DEEPEST or isinstance(value, type | ModuleType | keras.Layer | keras.Variable | str | bytes):
        return False
    return any(hides_tensors(part, depth + 1) for part in parts_of(value))


def parts_of(value: Any) -> Iterator[Any]:
    if isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if not is_empty(cell))
        yield from value.__defaults__ or ()
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    else:
        yield from getattr(value, "__dict__", {}).values()
        yield from (getattr(value, slot, None) for kind in type(value).__mro__ for slot in slots_of(kind))


def slots_of(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is PLACE
    except ValueError:  # nothing is in it yet
        return True


def each_once(
    inputs: list[Any], function: Callable[[list[Any]], list[Any]]
) -> tuple[list[Any], Callable[[list[Any]], list[Any]]]:
    """A tensor that is given twice is one tensor inside, too: Keras' layers take masks off tensors, not off arguments."""
    distinct = list({id(tensor): tensor for tensor in inputs}.values())
    places = {id(tensor): place for place, tensor in enumerate(distinct)}
    order = [places[id(tensor)] for tensor in inputs]
    return distinct, lambda values: function([values[place] for place in order])
