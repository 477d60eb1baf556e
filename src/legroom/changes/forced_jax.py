"""A function's jaxpr, computed equation by equation, with comparisons of samples that come out as is wished.

What is computed from samples is followed from the arguments on. Functions inside are followed too, loops and branches are computed as they are.

Tested with JAX 0.10.2: what `jax.make_jaxpr` gives, of its equations `ctx.manager` and the parameters named `INNER`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from legroom.changes.bends import Bends
from legroom.changes.forced import Forced, Shape

INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")
MOST_EQUATIONS = 1000
LOOPS = frozenset(("scan", "while", "cond"))
Value = tuple[Any, bool]  # and whether samples are in it


class Equations:
    """One computation."""

    def __init__(self, forced: Forced, bends: Bends | None = None) -> None:
        self.forced = forced
        self.bends = bends or Bends()
        self.compared: list[Shape] = []

    def run(self, call: Callable[[Any], list[Any]], rows: Any) -> list[Any]:
        import jax

        closed = jax.make_jaxpr(call)(rows)
        if len(closed.jaxpr.eqns) > MOST_EQUATIONS:
            raise ValueError("too many to be computed one by one")
        given = [(leaf, True) for leaf in jax.tree_util.tree_leaves(rows)]
        return [value for value, _ in self.evaluate(closed.jaxpr, closed.consts, given)]

    def evaluate(self, jaxpr: Any, constants: Sequence[Any], given: Sequence[Value]) -> list[Value]:
        known: dict[Any, Value] = dict(zip(jaxpr.constvars, ((one, False) for one in constants), strict=True))
        known |= dict(zip(jaxpr.invars, given, strict=True))

        def of(atom: Any) -> Value:
            return (atom.val, False) if hasattr(atom, "val") else known[atom]

        for equation in jaxpr.eqns:
            found = self.equation(equation, [of(atom) for atom in equation.invars])
            known |= dict(zip(equation.outvars, found, strict=True))
        return [of(atom) for atom in jaxpr.outvars]

    def equation(self, equation: Any, given: list[Value]) -> list[Value]:
        inner = inner_of(equation)
        if inner is not None:
            return self.evaluate(*inner, given)
        values = [value for value, _ in given]
        samples = any(of_samples for _, of_samples in given)
        with equation.ctx.manager:
            found = equation.primitive.bind(*values, **equation.params)
        outputs = list(found) if equation.primitive.multiple_results else [found]
        if samples and is_comparison(values, outputs):
            outputs = [self.compare(outputs[0])]
        if samples and outputs and not is_check(equation.invars):
            outputs[0] = self.bend(equation, values, outputs[0])
        return [(output, samples) for output in outputs]

    def compare(self, truths: Any) -> Any:
        import jax.numpy as jnp

        number, shape = len(self.compared), tuple(truths.shape)
        self.compared.append(shape)
        return jnp.asarray(self.forced.truths(number, shape)) if number in self.forced.which else truths

    def bend(self, equation: Any, values: list[Any], output: Any) -> Any:
        import jax.numpy as jnp

        made = self.bends.meet(equation.primitive.name, values, output, equation.params.get("axes"))
        return output if made is None else jnp.asarray(made)


def inner_of(equation: Any) -> tuple[Any, Sequence[Any]] | None:
    """The function that an equation calls, and its constants; None where it calls none, or is a loop or a branch."""
    if equation.primitive.name in LOOPS:
        return None
    found = next((equation.params[name] for name in INNER if name in equation.params), None)
    if found is None:
        return None
    return (found.jaxpr, found.consts) if hasattr(found, "consts") else (found, ())


def is_check(atoms: Sequence[Any]) -> bool:
    """x != x where it is not a number."""
    return len(atoms) == 2 and atoms[0] is atoms[1]


def is_comparison(values: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether something else than truths gave truths."""
    import numpy as np

    return bool(values) and outputs[0].dtype == np.bool_ and bool(outputs[0].shape) and values[0].dtype != np.bool_
