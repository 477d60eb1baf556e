"""Numbers that a loss, a layer or a step computes with and that will be others later on: what a callback raises from nothing, a counter, a flag.

A term of a loss may weigh nothing at first. So the numbers are set to others while it is tried out: those in small variables that the code reads, and, where it
runs eagerly and Python is asked at every step, the small floating point numbers that it finds in objects, lists, closures and globals.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from types import CellType
from typing import Any, Protocol

from legroom.changes.compared import compared_by, compared_numbers
from legroom.changes.custom_models import native, same_for
from legroom.changes.own_code import LIBRARIES, Function, functions_of, root_of
from legroom.errors import InputError, LegroomError

STAGES = 4
COUNTS = (37, 1537, 1_000_003, 1)  # for what a step itself moves on
NUMBERS = (1, 2, 3, 4, 5, 37)  # for other integers: a phase, how often a loop runs
MOST_THRESHOLDS = 4  # that other numbers are set to
NEAR = 0.01  # of a threshold, above and below it
MOST_MARKS = 6  # whole numbers that integers are compared with, and as many above them
PARTS = (0.5, 1.0, 1.0, 1.0)  # for what is 0
FEW = 1024  # numbers of a variable: weights of several terms or of classes, gates
SEED = "seed_generator_state"  # how Keras calls the states of its generators
SPREAD = 0.4  # of what is set in an array
SMALL = 0.1  # a weight that is below may be raised to 1


class Number(Protocol):
    """Where a single number is found."""

    @property
    def name(self) -> str: ...

    def read(self) -> Any: ...

    def write(self, value: Any) -> None: ...


@dataclass(frozen=True)
class InVariable:
    variable: Any  # TensorFlow's or JAX's

    @property
    def name(self) -> str:
        return str(self.variable.name).partition(":")[0]

    def read(self) -> Any:
        import numpy as np

        return np.asarray(self.variable)

    def write(self, value: Any) -> None:
        self.variable.assign(value)


@dataclass(frozen=True)
class InPython:
    """In a dictionary (an object's or a module's, too), a list or a cell of a closure."""

    holder: Any
    key: Any
    name: str

    def read(self) -> Any:
        import numpy as np

        return np.float64(self.holder.cell_contents if isinstance(self.holder, CellType) else self.holder[self.key])

    def write(self, value: Any) -> None:
        if isinstance(self.holder, CellType):
            self.holder.cell_contents = float(value)
        else:
            self.holder[self.key] = float(value)


@dataclass(frozen=True)
class Numbers:
    """Numbers that may be others, the whole numbers that integers among them are set to, and how often they are set to others."""

    each: tuple[Number, ...]
    whole: tuple[int, ...]
    stages: int
    beyond: tuple[float, ...] = ()  # what other numbers are set to after that


class MadeUp:
    """What single integers of a model are while it is called with values that are made up, and, if that is said, its other numbers."""

    whole = 0
    number: float | None = None


def numbers_read(
    owners: Iterable[Any], call: Callable[[Any], Any], rows: Any, *, eager: bool, live: bool = False
) -> Numbers:
    """Those that `call` reads of these rows, and what belongs to the `owners` computes with. A step that is compiled has Python's numbers in it for good, and
    on JAX those of variables, too. What belongs to layers is made up while they are called, if it is not `live`."""
    import keras

    owners = list(owners)
    functions = [function for owner in owners for function in functions_of(owner)]
    made_up = {id(one): one for owner in owners for one in getattr(owner, "non_trainable_variables", ())}
    own = {id(variable): variable for owner in owners for variable in getattr(owner, "variables", ())}
    found: dict[int, Number] = {}
    graph = graph_of(call, rows)
    if live and keras.backend.backend() == "tensorflow":
        own = {key: variable for key, variable in own.items() if key not in made_up}
    read = [] if graph is None else read_of_others(graph, own.values())
    if eager or keras.backend.backend() == "tensorflow":
        held = [value for function in functions for value in function.values if id(value) not in own]
        held += state_of_layers(owners) if live else ()
        for variable in map(native_or_none, (*read, *held)):
            if variable is not None and is_small(variable) and SEED not in str(variable.name):
                found[same_for(variable)] = InVariable(variable)
    places: dict[Any, Number] = {}
    if eager:
        places = {(id(one.holder), one.key): one for function in functions for one in in_python(function)}
    each, whole = (*found.values(), *places.values()), (*NUMBERS, *marks_in(graph))
    kinds = {number.read().dtype.kind for number in each}
    kinds |= {"f" for one in state_of_layers(owners) if is_small(one) and "float" in str(one.dtype)}
    beyond = around(compared_numbers(graph) if graph is not None else compared_by(call, rows)) if "f" in kinds else ()
    integers = "i" in kinds or "u" in kinds or any(map(is_integer, made_up.values()))
    counts = (len(whole) if integers else 0, STAGES if each else 0, STAGES + len(beyond) + 1 if "f" in kinds else 0)
    return Numbers(each, whole, max(counts), beyond)


def read_of_others(graph: Any, own: Iterable[Any]) -> list[Any]:
    """The variables that a graph reads: single numbers, and whatever is none of the owners'."""
    belong = {same_for(native(variable)) for variable in own}
    return [one for one in graph.variables if is_number(one) or same_for(one) not in belong]


def state_of_layers(owners: Iterable[Any]) -> Iterator[Any]:
    """Numbers that layers keep, and small arrays of the user's own."""
    for owner in owners:
        users = root_of(type(owner)) not in LIBRARIES
        yield from (one for one in getattr(owner, "non_trainable_variables", ()) if users or not tuple(one.shape))


def is_integer(variable: Any) -> bool:
    return not tuple(variable.shape) and "float" not in str(variable.dtype)


def around(marks: Iterable[float]) -> tuple[float, ...]:
    """A little above and below what something is compared with."""
    each = list(dict.fromkeys(marks))[:MOST_THRESHOLDS]
    return tuple(mark + sign * NEAR * (abs(mark) or 1.0) for mark in each for sign in (1, -1))


def marks_in(graph: Any) -> list[int]:
    """What a traced call compares with, and what lies above: on whichever side of it something begins."""
    compared = [] if graph is None else [int(one) for one in compared_numbers(graph) if float(one).is_integer()]
    near = dict.fromkeys(one for mark in compared[:MOST_MARKS] for one in (mark, mark + 1))
    return [one for one in near if one not in NUMBERS and 0 <= one < COUNTS[2]]


def native_or_none(value: Any) -> Any:
    """The variable that a value is; on JAX Keras' own."""
    import keras

    if keras.backend.backend() == "tensorflow":
        return native(value) if is_variable(value) else None
    return value if isinstance(value, keras.Variable) else None


def graph_of(call: Callable[[Any], Any], rows: Any) -> Any:
    """The code as TensorFlow traces it; None where it cannot be traced."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    try:
        return tf.function(call).get_concrete_function(rows).graph
    except Exception:  # noqa: BLE001 - the user's own, which may run eagerly only
        return None


def in_python(function: Function) -> Iterator[InPython]:
    """Small numbers that the function's code finds by the names in it, or in a list or a dictionary that it finds so."""
    for holder, key, name in holders_of(function):
        value = looked_up(holder, key)
        if is_little(value):
            yield InPython(holder, key, name)
        elif isinstance(value, list):
            yield from (InPython(value, at, name) for at, one in enumerate(value) if is_little(one))
        elif isinstance(value, dict):
            yield from (InPython(value, at, f"{name}[{at!r}]") for at, one in value.items() if is_little(one))


def holders_of(function: Function) -> Iterator[tuple[Any, Any, str]]:
    """Where the names in its code may be found: a dictionary and a key, or a cell."""
    code, plain = function.function.__code__, function.function
    yield from ((plain.__globals__, name, name) for name in sorted(function.names))
    for name, cell in zip(code.co_freevars, plain.__closure__ or (), strict=True):
        yield cell, None, name
    for owner in function.owners.values():
        fields = getattr(owner, "__dict__", {})
        yield from ((fields, name, name) for name in sorted(function.names))


def is_little(value: Any) -> bool:
    """A weight that may be raised. Others are seen as they are, and may be thresholds and rates that must not be just any."""
    return isinstance(value, float) and abs(value) < SMALL


def looked_up(holder: Any, key: Any) -> Any:
    if not isinstance(holder, CellType):
        return holder.get(key)
    try:
        return holder.cell_contents
    except ValueError:  # nothing is in it yet
        return None


@contextmanager
def moved(numbers: Numbers, stage: int) -> Iterator[list[str]]:
    """Meanwhile they are others; those are named."""
    before: list[tuple[Number, Any]] = []
    MadeUp.whole = numbers.whole[min(stage, len(numbers.whole) - 1)]
    MadeUp.number = (*numbers.beyond, -1.0)[min(stage - STAGES, len(numbers.beyond))] if stage >= STAGES else None
    try:
        for number in numbers.each:
            value = number.read()
            other = number_at(value, stage, numbers.whole, numbers.beyond)
            if other is not None:
                before.append((number, value))
                number.write(other)
        yield [number.name for number, _ in before]
    finally:
        MadeUp.whole, MadeUp.number = 0, None
        for number, value in reversed(before):
            number.write(value)


def number_at(value: Any, stage: int, whole: Sequence[int] = NUMBERS, beyond: Sequence[float] = ()) -> Any:
    """Another number of the same type, or others in an array; None where there is none."""
    import numpy as np

    kind = value.dtype.kind
    if np.ndim(value):
        others = [number_at(one, stage, whole, beyond) for one in np.ravel(value)] if kind in "bif" else [None]
        if None in others:
            return None
        # weights of classes that are alike may be told apart later on
        apart = 1 + SPREAD * (np.arange(len(others)) % 3) if kind == "f" else 1
        return (np.array(others) * apart).astype(value.dtype).reshape(value.shape)
    if kind == "b":
        return bool(value) != (stage == 0)
    if kind in "iu":
        return min(whole[min(stage, len(whole) - 1)], int(np.iinfo(value.dtype).max))
    if kind != "f":
        return None
    if STAGES <= stage < STAGES + len(beyond):
        return float(beyond[stage - STAGES])
    if stage == STAGES + len(beyond):
        return -(abs(float(value)) or 1.0)
    stage = min(stage, STAGES - 1)
    if whole is COUNTS and stage == STAGES - 2 and float(value).is_integer():
        return float(COUNTS[1])
    if not value or (stage == STAGES - 1 and abs(value) < SMALL):
        return PARTS[stage]
    return float(value) * (0.5, 2.0, 2.0, 2.0)[stage]


def waited(error: LegroomError, names: list[str]) -> InputError:
    """The reason, with what it was found out by."""
    which = f" ({', '.join(names[:5])})" if names else ""
    return InputError(
        f"{error.message} That shows where counters and other numbers that it computes with{which} are not what they are now.",
        error.hint,
    )


def is_variable(value: Any) -> bool:
    import keras
    import tensorflow as tf

    return isinstance(value, keras.Variable | tf.Variable)


def is_number(variable: Any) -> bool:
    return not tuple(variable.shape)


def is_small(variable: Any) -> bool:
    """A number, or a few of them; states of random generators are unsigned."""
    sizes = tuple(variable.shape)
    kind = str(variable.dtype)
    return (
        all(isinstance(one, int) for one in sizes)
        and prod(sizes) <= FEW
        and "uint" not in kind
        and "string" not in kind
    )
