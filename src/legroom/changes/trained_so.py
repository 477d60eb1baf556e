"""By what models are trained now, as a key: what has been found out holds for as long as it is the same.

Compiled anew, with other layers frozen, or run eagerly, the same step computes something else. So it may where a flag, a whole number or a word that its code
finds has been changed, and it runs eagerly or is traced anew; what changes at every step is a counter, and is let be.

Private names used, tested with Keras 3.15.1: `Trainer._compile_loss`, `Trainer._compile_metrics`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from legroom.changes.custom_models import DEPTH, reachable
from legroom.changes.later_numbers import looked_up, switches_of
from legroom.changes.own_code import functions_from, functions_of, is_users_function, plain

COUNTED = 4  # changes, from which on it counts
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


@dataclass
class Switches:
    """Flags, whole numbers and words that code finds by name; forgotten when they have changed too often."""

    places: list[tuple[Any, Any]]
    before: list[Any] = field(default_factory=list)
    changes: int = 0

    def now(self) -> list[Any]:
        """What they are; the same for good where they are counters."""
        if self.changes >= COUNTED:
            return self.before
        values = [looked_up(*place) for place in self.places]
        if self.before and any(one is not two for one, two in zip(values, self.before, strict=True)):
            self.changes += 1
        self.before = values
        return values


def switches_in(owners: Iterable[Any], functions: Iterable[Any] = (), *, eager: bool) -> Switches:
    """Those of layers and losses, and of functions."""
    found = [each for owner in owners for each in functions_of(owner)]
    found += functions_from([plain(one) for one in functions if is_users_function(one)], {})
    return Switches(switches_of(found, eager=eager))


def layers_of(function: Callable[..., Any]) -> list[Any]:
    """Those that a step's code refers to."""
    import keras

    found = {id(value): value for value in reachable(function, DEPTH, set()) if isinstance(value, keras.Layer)}
    return list(found.values())
