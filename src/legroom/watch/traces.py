"""Compiled functions and how often they were traced.

Private names used, tested with TensorFlow 2.21.0: `Function._list_all_concrete_functions`, `function_type.parameters` and
their `type_constraint`; with JAX 0.10.2: `PjitFunction._cache_size`.
"""

from typing import Any

from legroom.watch.evidence import Traced

SHOWN = 4  # values of an argument
COMPARED = 12  # traces of a function


def is_compiled(kind: type) -> bool:
    """Whether objects of this type are TensorFlow's or JAX's compiled functions."""
    name = kind.__name__
    return name == "PjitFunction" or (name == "Function" and kind.__module__.endswith("polymorphic_function"))


def traced(function: Any) -> Traced:
    """How often this function was traced so far."""
    if type(function).__name__ == "PjitFunction":
        return Traced(jax_name(function), int(function._cache_size()))
    count = int(function.experimental_get_tracing_count())
    return Traced(tensorflow_name(function), count, changed(function) if count > 2 else ())


def jax_name(function: Any) -> str:
    return place(getattr(function, "__wrapped__", None), getattr(function, "__name__", "a jitted function"))


def tensorflow_name(function: Any) -> str:
    python: Any = getattr(function, "python_function", None)
    return place(python, getattr(function, "_name", None) or "a tf.function")


def place(function: Any, name: str) -> str:
    """A function's name with its file and line."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = getattr(function, "__qualname__", name)
    return name if code is None else f"{name}() ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"


def changed(function: Any) -> tuple[str, ...]:
    """What differed between the last traces of a tf.function, argument by argument."""
    try:
        traces = function._list_all_concrete_functions()[-COMPARED:]
    except (AttributeError, TypeError):
        return ()
    seen: dict[str, list[str]] = {}
    for one in traces:
        for name, parameter in one.function_type.parameters.items():
            told = describe(parameter.type_constraint)
            if told not in seen.setdefault(name, []):
                seen[name].append(told)
    return tuple(told_change(name, values) for name, values in seen.items() if len(values) > 1)


def told_change(name: str, values: list[str]) -> str:
    return f"`{name}` was {', '.join(values[-SHOWN:])}{' …' if len(values) > SHOWN else ''}"


def describe(constraint: Any) -> str:
    """A Python value, or a tensor's type and shape."""
    if hasattr(constraint, "value"):
        return f"{constraint.value!r:.40}"
    if hasattr(constraint, "shape") and hasattr(constraint, "dtype"):
        return f"{constraint.dtype.name}{constraint.shape}"
    return f"{constraint!r:.60}"
