"""What a user wrote into a layer or a model and is run in a step: the names that the code uses, and what these stand for."""

import dis
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

RUN = ("__call__", "call", "compute_loss", "train_step", "compute_metrics")
LIBRARIES = frozenset({"keras", "tensorflow", "jax", "numpy", "random", "legroom", "builtins"})
NOT_RUN = ("build", "_initializer")  # ends of the names of what a layer holds and calls before it trains
SHORT = 16  # entries of a list of objects
DRAWS = frozenset({"normal", "truncated_normal", "uniform", "shuffle", "sample"})


@dataclass(frozen=True)
class Code:
    """All functions of the user's that one layer runs, taken together."""

    names: set[str] = field(default_factory=set)  # without those that stand for layers, which speak for themselves
    values: list[Any] = field(default_factory=list)

    @property
    def draws(self) -> bool:
        """Whether it seems to draw random numbers."""
        named = any(name in DRAWS or "random" in name or name.endswith("dropout") for name in self.names)
        return named or any("random" in home_of(value) for value in self.values)


@dataclass(frozen=True)
class Function:
    """One of the user's that is run: the names in its code, what these and its closure stand for, and what they are as attributes of `owners`, the objects of
    the user's that have been met so far."""

    function: FunctionType
    names: set[str]
    values: list[Any]
    held: dict[str, list[Any]]
    owners: dict[int, Any]


def code_of(layer: Any) -> Code:
    found = Code()
    for each in functions_of(layer):
        found.names.update(name for name in each.names if not speaks_for_itself(each.held.get(name, [])))
        found.values.extend(each.values)
    return found


def functions_of(layer: Any) -> Iterator[Function]:
    """Follows methods, functions and objects of the user's by the names in the code, not what is called in another way."""
    return functions_from(list(roots_of(layer)), {id(layer): layer})


def functions_from(waiting: list[FunctionType], owners: dict[int, Any]) -> Iterator[Function]:
    seen: set[int] = set()
    while waiting:
        function = waiting.pop()
        if id(function.__code__) in seen:
            continue
        seen.add(id(function.__code__))
        names, values = used_by(function)
        held = attributes(owners, names, values)
        values += [value for each in held.values() for value in each]
        yield Function(function, names, values, held, owners)
        waiting += [plain(value) for value in values if is_users_function(value)]
        called = (
            inspect.getattr_static(type(one), "__call__", None) for one in owners.values() if is_users_object(one)
        )
        waiting += [plain(one) for one in called if is_users_function(one)]


def attributes(owners: dict[int, Any], names: set[str], values: list[Any]) -> dict[str, list[Any]]:
    """What the names stand for as attributes of the layer and of the user's objects, which are added to `owners` as they are found."""
    held: dict[str, list[Any]] = {}
    waiting = [*owners.values(), *(one for value in values for one in users_objects(value))]
    while waiting:
        owner = waiting.pop()
        owners[id(owner)] = owner
        for name in names:
            if has(owner, name):
                value = inspect.getattr_static(owner, name)
                held.setdefault(name, []).append(value)
                if isinstance(value, MemberDescriptorType):
                    value = asked(owner, name)
                waiting += [one for one in users_objects(value) if id(one) not in owners]
    return held


def users_objects(value: Any) -> list[Any]:
    """The value itself, or what is in a short list, tuple or dictionary, as far as it is the user's."""
    each = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
    return [one for one in each if is_users_object(one)] if len(each) <= SHORT else []


def speaks_for_itself(held: list[Any]) -> bool:
    """Layers are asked themselves, and the code of functions is read."""
    return bool(held) and all(stands_for_layers(value) or is_users_function(value) for value in held)


def has_own_code(layer: Any) -> bool:
    return root_of(type(layer)) != "keras" or any(True for _ in roots_of(layer))


def roots_of(layer: Any) -> Iterator[FunctionType]:
    """Its methods that Keras calls in a step, also where another one has been put in their place, and the functions that it was given (an activation, a
    Lambda's)."""
    held = [value for name, value in vars(layer).items() if not name.endswith(NOT_RUN)]
    methods = [inspect.getattr_static(one, name) for name in RUN for one in (layer, type(layer)) if has(one, name)]
    for value in (*methods, *held):
        if is_users_function(value):
            yield plain(value)


def used_by(function: FunctionType) -> tuple[set[str], list[Any]]:
    """The names in a function's code and in that of the functions inside it; what these names and its closure stand for."""
    names: set[str] = set()
    values: list[Any] = [value for cell in function.__closure__ or () for value in contents(cell)]
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        names.update(code.co_names)
        for one in dis.get_instructions(code):
            if one.opname == "IMPORT_NAME":
                values.append(sys.modules.get(one.argval))
            elif one.opname == "LOAD_GLOBAL":
                values.append(function.__globals__.get(one.argval))
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return names, values


def contents(cell: Any) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # nothing is in it yet
        return []


def has(owner: Any, name: str) -> bool:
    return inspect.getattr_static(owner, name, None) is not None


def asked(value: Any, name: str, default: Any = None) -> Any:
    """An attribute of whatever it may be: an object of the user's may raise what it likes (`__getattr__ = dict.__getitem__`)."""
    try:
        return getattr(value, name, default)
    except Exception:  # noqa: BLE001 - the user's own code
        return default


def plain(value: Any) -> Any:
    """The function in a method, a property, a decorator or a `tf.function`."""
    value = value.fget if isinstance(value, property) else value
    value = asked(value, "python_function", value)
    return inspect.unwrap(asked(value, "__func__", value))


def is_users_function(value: Any) -> bool:
    if not (isinstance(value, FunctionType | MethodType | staticmethod | classmethod | property) or is_wrapped(value)):
        return False
    function = plain(value)
    return isinstance(function, FunctionType) and root_of(function) not in LIBRARIES


def is_wrapped(value: Any) -> bool:
    return asked(value, "python_function") is not None


def is_users_object(value: Any) -> bool:
    """Of a class of the user's that is no layer."""
    import keras

    plainly = isinstance(value, type | ModuleType | FunctionType | MethodType | keras.Layer)
    fields = asked(value, "__dict__") is not None or hasattr(type(value), "__slots__")
    return not plainly and fields and root_of(type(value)) not in LIBRARIES


def stands_for_layers(value: Any) -> bool:
    import keras

    each = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
    return bool(each) and all(isinstance(one, keras.Layer) for one in each)


def root_of(thing: Any) -> str:
    return str(asked(thing, "__module__") or "").partition(".")[0]


def home_of(value: Any) -> str:
    """The module that a function or a module is, or is in."""
    if isinstance(value, ModuleType):
        return value.__name__
    return str(asked(value, "__module__") or "") if callable(value) else ""
