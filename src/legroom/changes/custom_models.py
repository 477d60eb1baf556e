"""What a training step of the user's computes with, by what its code, or what it calls, refers to: models, optimizers, tapes."""

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from legroom.changes.own_code import asked

DEPTH = 3  # functions that call functions
UPDATES = frozenset({"apply_gradients", "apply", "minimize"})


def models_of(function: Any) -> list[Any]:
    """Each model once, without those that are part of another one, or have nothing to train."""
    import keras

    found: dict[int, Any] = {}
    for value in reachable(function, DEPTH, set()):
        if isinstance(value, keras.Model):
            found.setdefault(id(value), value)
    inner = {id(layer) for model in found.values() for layer in model._flatten_layers() if layer is not model}
    outer = [model for key, model in found.items() if key not in inner]
    return [model for model in outer if model.trainable_variables or not model.built]


def reachable(function: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    """What the function's closure and globals hold, and what the functions and objects among it do."""
    function = asked(function, "python_function", function)
    if depth == 0 or id(function) in seen:
        return
    seen.add(id(function))
    owner = asked(function, "__self__")
    try:
        variables = inspect.getclosurevars(inspect.unwrap(function))
        values = [*variables.nonlocals.values(), *variables.globals.values()]
    except (TypeError, ValueError):
        values = []
    values += [] if owner is None else [owner, *fields_of(owner)]
    for value in values:
        yield value
        if isinstance(value, FunctionType | MethodType) or asked(value, "python_function") is not None:
            yield from reachable(value, depth - 1, seen)
        else:
            yield from fields_of(value)


def fields_of(value: Any) -> list[Any]:
    """One step into an object of the user's own, or into a list or dictionary."""
    import keras

    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    fields = asked(value, "__dict__")
    if isinstance(value, keras.Layer | type) or inspect.ismodule(value) or not isinstance(fields, dict):
        return []
    return list(fields.values())


def updates(function: Any) -> bool:
    """Whether the code of this function, or of one that it calls, may apply gradients."""
    return not UPDATES.isdisjoint(names_in(function))


def trains(function: Any) -> bool:
    """Whether it may take gradients with a tape, too."""
    return {"GradientTape", "gradient"} <= (found := names_in(function)) and not UPDATES.isdisjoint(found)


def names_in(function: Any) -> set[str]:
    """The names of attributes and globals that its code uses, and that of the functions it refers to."""
    found: set[str] = set()
    for one in (function, *reachable(function, DEPTH, set())):
        plain = asked(one, "python_function", one)
        if not isinstance(plain, FunctionType | MethodType):
            continue
        code = getattr(inspect.unwrap(plain), "__code__", None)  # what TensorFlow wraps may be written in C
        waiting: list[CodeType] = [] if code is None else [code]
        while waiting:
            code = waiting.pop()
            found.update(code.co_names)
            waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


def native(variable: Any) -> Any:
    """TensorFlow's own variable behind one of Keras'."""
    import keras

    return variable.value if isinstance(variable, keras.Variable) else variable


def same_for(variable: Any) -> int:
    """One number for a variable and all that stands for it: what `assign_add` gives is another object with the same handle."""
    return id(asked(variable, "handle", variable))
