"""What code finds in Python by the names in it, as it is now: where that has changed, a step that runs eagerly, or is traced anew, may compute something else.

Flags, numbers, words, functions and objects: in globals, closures, the user's objects and their classes, and in short lists, tuples, sets and dictionaries. What
changes again and again is a counter, and is let be; each place is counted by itself. What the code only sets is none of it.
"""

import dis
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from legroom.changes.own_code import LIBRARIES, Function, asked, root_of

COUNTED = 4  # changes of one place, from which on it counts
FEW = 64  # entries of what is looked into
NUMBERS = 1024  # of an array: weights of classes
DEEP = 4
INNER = 16  # entries of what lies deeper
CALLED = (types.FunctionType, types.BuiltinFunctionType, partial)
READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_DEREF")
MISSING = "missing"
UNTOLD = "untold"  # what is too large to be kept, or no matter
Place = tuple[Any, Any]  # a dictionary, a class or an object and a name in it; a cell, or a function for its defaults


class Same:
    """An object, told apart by its identity, and not held where that can be avoided: it may have a step's tensors in it."""

    __slots__ = ("number", "thing")

    def __init__(self, thing: Any) -> None:
        self.number = id(thing)
        try:
            self.thing: Callable[[], Any] = weakref.ref(thing)
        except TypeError:
            self.thing = lambda: thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing() is not None and self.thing() is other.thing()

    def __hash__(self) -> int:
        return self.number


def portrait(value: Any, depth: int = DEEP) -> Any:
    """What of a value is compared: simple ones by what they are, short collections by what is in them, all else by identity."""
    import numpy as np

    if value is None or isinstance(value, bool | int | str | bytes | complex):
        return type(value), value
    if isinstance(value, float | np.generic):
        return type(value), repr(value)  # NaN is what it was
    if isinstance(value, np.ndarray):
        small = value.size <= NUMBERS and value.dtype.kind != "O"
        return (value.dtype.str, value.shape, value.tobytes()) if small else UNTOLD
    if isinstance(value, partial):
        return Same(value.func), collection((value.args, value.keywords), depth)
    if isinstance(value, Mapping | list | tuple | set | frozenset | deque):
        return collection(value, depth)
    if isinstance(value, types.MethodType):
        return Same(value.__func__), Same(value.__self__)
    if isinstance(value, types.ModuleType) or is_large(value):
        return UNTOLD
    return Same(value)


def collection(value: Any, depth: int) -> Any:
    if len(value) > (FEW if depth == DEEP else INNER) or not depth:
        return type(value), len(value)
    if isinstance(value, Mapping):
        return type(value), tuple((portrait(key, 0), portrait(one, depth - 1)) for key, one in value.items())
    each = [portrait(one, depth - 1) for one in value]
    return type(value), frozenset(each) if isinstance(value, set | frozenset) else tuple(each)


def is_large(value: Any) -> bool:
    """A tensor of more than a few numbers."""
    try:
        shape = asked(value, "shape")
        sizes = [1 if one is None else int(one) for one in (() if shape is None else shape)]
    except (TypeError, ValueError, AttributeError, NotImplementedError, RuntimeError):  # nothing that has a plain shape
        return False
    return prod(sizes) > NUMBERS


def places_of(functions: Iterable[Function], layers: Iterable[Any] = ()) -> dict[tuple[int, Any], Place]:
    """Where the names that their code reads are found, and the functions that layers hold."""
    found: dict[tuple[int, Any], Place] = {}
    owners: dict[int, Any] = {id(one): one for one in layers}
    for each in functions:
        owners |= each.owners
        for holder, key in places_in(each):
            found[id(holder), key] = (holder, key)
    for owner in owners.values():
        for holder, key in held_functions(owner):
            found[id(holder), key] = (holder, key)
    return found


def places_in(function: Function) -> Iterator[Place]:
    plain, names = function.function, read_by(function.function.__code__)
    yield from ((plain.__globals__, name) for name in names if name in plain.__globals__)
    for cell in plain.__closure__ or ():
        yield cell, None
    if plain.__defaults__ or plain.__kwdefaults__:
        yield plain, "defaults"
    for owner in function.owners.values():
        fields = asked(owner, "__dict__")
        classes = users_classes(type(owner))
        for name in names:
            of_class = [one for one in classes if name in vars(one)]
            yield from ((one, name) for one in of_class)
            if isinstance(fields, dict) and (of_class or name in fields):
                yield fields, name
            if any(isinstance(vars(one)[name], types.MemberDescriptorType) for one in of_class):
                yield owner, name
    for one in (one for value in function.values if isinstance(value, type) for one in users_classes(value)):
        yield from ((one, name) for name in names if name in vars(one))
    for value in (one for one in function.values if is_open(one)):
        yield from ((vars(value), name) for name in names if name in vars(value))


def is_open(value: Any) -> bool:
    """A module of the user's (`import config`), or an object of Keras' that something may be hung on: `model.phase`."""
    import keras

    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] not in LIBRARIES
    return isinstance(value, keras.Layer | keras.optimizers.Optimizer | keras.losses.Loss | keras.metrics.Metric)


def users_classes(kind: type) -> list[type]:
    return [one for one in kind.__mro__ if root_of(one) not in LIBRARIES]


def held_functions(owner: Any) -> Iterator[Place]:
    """What a layer calls whatever its name is: its activation, and a `call` that is put in place of its own."""
    import keras

    if isinstance(owner, keras.Layer) and not isinstance(owner, keras.Model):
        fields = vars(owner)
        yield fields, "call"
        yield from ((fields, name) for name, value in fields.items() if isinstance(value, CALLED))


def read_by(code: types.CodeType) -> set[str]:
    """The names that code, and the functions inside it, read."""
    found: set[str] = set()
    waiting = [code]
    while waiting:
        code = waiting.pop()
        found.update(
            one.argval for one in dis.get_instructions(code) if one.opname in READS and isinstance(one.argval, str)
        )
        found.update(
            one for one in code.co_consts if isinstance(one, str) and one.isidentifier()
        )  # getattr(self, "mode")
        waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return found


def found_at(place: Place) -> Any:
    holder, key = place
    if isinstance(holder, types.FunctionType):
        return portrait((holder.__defaults__, holder.__kwdefaults__))
    if isinstance(holder, type):
        return portrait(vars(holder).get(key, MISSING))
    if isinstance(holder, Mapping):
        return portrait(holder[key]) if key in holder else MISSING
    if not isinstance(holder, types.CellType):  # an object with slots
        return portrait(asked(holder, key, MISSING))
    try:
        return portrait(holder.cell_contents)
    except ValueError:  # nothing is in it yet
        return MISSING


@dataclass
class PythonState:
    """What is found at places that `find` names anew whenever something has changed."""

    find: Callable[[], dict[tuple[int, Any], Place]]
    places: dict[tuple[int, Any], Place] = field(default_factory=dict)
    before: dict[tuple[int, Any], Any] = field(default_factory=dict)
    changes: dict[tuple[int, Any], int] = field(default_factory=dict)
    token: object = None

    def now(self) -> object:
        """The same object for as long as nothing has changed that is no counter."""
        changed = self.changed()
        for key in changed:
            self.changes[key] = self.changes.get(key, 0) + 1
        if changed or self.token is None:
            self.places = self.find()
            self.token = object()
            self.settle()
        return self.token

    def changed(self) -> list[tuple[int, Any]]:
        watched = (key for key in self.places if self.changes.get(key, 0) < COUNTED)
        return [key for key in watched if found_at(self.places[key]) != self.before.get(key)]

    def settle(self) -> None:
        """It is as it should be: what a trial of the step has changed is no change."""
        self.before = {key: found_at(place) for key, place in self.places.items()}
