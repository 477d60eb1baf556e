"""A loss whose comparisons of samples come out otherwise, on either backend: how its value falls into slices then.

On TensorFlow it is computed eagerly, on JAX equation by equation.
"""

from collections.abc import Callable
from typing import Any

from legroom.changes.custom_flow import Flow
from legroom.changes.forced import Forced, Shape
from legroom.changes.hearing import hearing

Outputs = list[Any]


def run_forced(
    call: Callable[[Any], Outputs], rows: Any, place: tuple[int, int], pattern: int, which: frozenset[int]
) -> tuple[Outputs, list[Shape]]:
    """What `call` gives for these rows, from place to place of all that are tried, and the shapes of the comparisons that were made; `which` of them come out
    as the pattern says."""
    import keras

    forced = Forced(pattern, place, which)
    if keras.backend.backend() == "jax":
        from legroom.changes.forced_jax import Equations

        equations = Equations(forced)
        return equations.run(call, rows), equations.compared
    flow = Flow([leaf for leaf in keras.tree.flatten(rows) if leaf is not None], forced)
    with hearing(flow.heard):
        return call(rows), flow.compared
