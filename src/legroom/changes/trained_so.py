"""By what models are trained now, as a key: what has been found out holds for as long as it is the same.

Compiled anew, with other layers frozen, or run eagerly, the same step computes something else. So it may where something has been changed that its code finds in
Python (`python_state`), and it runs eagerly or is traced anew.

Private names used, tested with Keras 3.15.1: `Trainer._compile_loss`, `Trainer._compile_metrics`, `Layer._flatten_layers`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from legroom.changes.custom_models import DEPTH, reachable
from legroom.changes.own_code import asked, functions_from, functions_of, is_users_function, plain
from legroom.changes.python_state import Place, PythonState, places_of

COMPILED = ("optimizer", "_compile_loss", "_compile_metrics")


class TrainedSo:
    """Objects, told apart by their identity; they are held, so that no other one gets theirs."""

    def __init__(self, *things: Any) -> None:
        self.things = things

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrainedSo) or len(self.things) != len(other.things):
            return False
        return all(one is two for one, two in zip(self.things, other.things, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.things)))


def trained_so(layers: Iterable[Any]) -> TrainedSo:
    import keras

    things: list[Any] = []
    for layer in layers:
        things += layer.trainable_variables
        if isinstance(layer, keras.Model):
            things += [getattr(layer, name, None) for name in COMPILED]  # one that is not compiled has not all of them
            things.append(bool(layer.run_eagerly))
    return TrainedSo(*things)


def state_of(
    owners: Callable[[], Iterable[Any]], functions: Iterable[Any] = (), objects: Callable[[], Iterable[Any]] = tuple
) -> PythonState:
    """What the code of layers and losses, and of functions that are given `objects`, finds in Python; `owners` are asked for anew when that has changed."""
    given = [one for one in functions if is_users_function(one)]
    bound = {id(one): one for one in map(owner_of, given) if one is not None}

    def find() -> dict[tuple[int, Any], Place]:
        known = list(owners())
        found = [each for owner in known for each in functions_of(owner)]
        met = dict(bound) | {id(one): one for one in objects()}
        return places_of([*found, *functions_from([plain(one) for one in given], met)], known)

    return PythonState(find)


def owner_of(function: Any) -> Any:
    """The object that a method is bound to."""
    return asked(asked(function, "python_function", function), "__self__")


def layers_of(function: Callable[..., Any]) -> list[Any]:
    """Those that a step's code refers to."""
    import keras

    found = {id(value): value for value in reachable(function, DEPTH, set()) if isinstance(value, keras.Layer)}
    return list(found.values())


def inner_layers(function: Callable[..., Any]) -> list[Any]:
    """Those, and the layers inside them."""
    found = {id(inner): inner for layer in layers_of(function) for inner in layer._flatten_layers()}
    return list(found.values())
