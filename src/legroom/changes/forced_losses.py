"""A loss whose comparisons of samples come out otherwise, on either backend: how its value falls into slices then.

On TensorFlow it is computed eagerly, on JAX equation by equation.
"""

from collections.abc import Callable
from typing import Any

from legroom.changes.bends import Bend, Bends
from legroom.changes.custom_flow import Flow
from legroom.changes.forced import Forced, Shape
from legroom.changes.hearing import hearing

Outputs = list[Any]


def run_forced(
    call: Callable[[Any], Outputs], rows: Any, place: tuple[int, int], pattern: int, which: frozenset[int]
) -> tuple[Outputs, list[Shape]]:
    """What `call` gives for these rows, from place to place of all that are tried, and the shapes of the comparisons that were made; `which` of them come out
    as the pattern says."""
    return run_with(call, rows, Forced(pattern, place, which), Bends())


def run_bent(
    call: Callable[[Any], Outputs], rows: Any, place: tuple[int, int], pattern: int, which: dict[int, Bend]
) -> tuple[Outputs, list[Bend]]:
    """The same of numbers of the whole batch that go through what bends."""
    bends = Bends(pattern, place, which)
    return run_with(call, rows, Forced(pattern, place, frozenset()), bends)[0], bends.met


def run_with(call: Callable[[Any], Outputs], rows: Any, forced: Forced, bends: Bends) -> tuple[Outputs, list[Shape]]:
    import keras

    if keras.backend.backend() == "jax":
        from legroom.changes.forced_jax import Equations

        equations = Equations(forced, bends)
        return equations.run(call, rows), equations.compared
    flow = Flow([leaf for leaf in keras.tree.flatten(rows) if leaf is not None], forced, bends)
    with hearing(flow.heard):
        return call(rows), flow.compared
