"""Whether what a model computes for a sample hangs on a number of the whole batch: by a branch, a floor, a sign of it, on which side it happens to be.

Such numbers are made to come out on the one side and on the other, and the outputs must be as they were.
"""

from collections.abc import Callable, Iterator
from typing import Any

from legroom.changes.bends import KINDS, MOST, PLACES, Bend, of_the_batch
from legroom.changes.custom_flow import ONLY_SIZES
from legroom.changes.forced import PATTERNS
from legroom.changes.forced_losses import run_bent
from legroom.changes.made_up import ROWS, rows_of
from legroom.changes.microbatch_kinds import on_cpu

BRANCHES = frozenset(("If", "StatelessIf", "Case", "StatelessCase", "cond"))
COMPARISONS = frozenset(
    (
        *("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"),
        *("eq", "ne", "lt", "le", "gt", "ge"),
    )
)
Call = Callable[[Any], list[Any]]
Node = tuple[str, list[Any]]  # an operation, and what it takes and gives


def outputs_when_bent(call: Call, arrays: Any) -> Iterator[list[Any]]:
    """What `call` gives for all rows as they are, and then with each such number on another side; nothing where there are none, or where the user's code does
    not run so."""

    def run(place: tuple[int, int], pattern: int = 0, which: dict[int, Bend] | None = None) -> Any:
        with on_cpu():
            return run_bent(call, rows_of(arrays, *place), place, pattern, which or {})

    def outputs(pattern: int, which: dict[int, Bend]) -> list[Any] | None:
        try:
            return list(run(PLACES[0], pattern, which)[0])
        except Exception:  # noqa: BLE001 - the user's own code, which may look after its numbers
            return None

    try:
        which = of_the_batch([run(place)[1] for place in PLACES])
    except Exception:  # noqa: BLE001 - the same, which may not run eagerly
        return
    for pattern in range(2 * PATTERNS if which else 0):
        found = outputs(pattern, which)
        alone = list(which)[:MOST] if found is None else []
        each = (outputs(0, {}) if not pattern else None, found, *(outputs(pattern, {at: which[at]}) for at in alone))
        yield from (one for one in each if one is not None)


def may_bend(graph: Any) -> bool:
    """Whether a traced call has anything without a row for each sample that might: most models have nothing, and need not be run op by op."""
    if hasattr(graph, "jaxpr"):
        return any(map(is_one, equations_of(graph.jaxpr)))
    return graph is None or any(map(is_one, nodes_with_samples(graph)))


def nodes_with_samples(graph: Any) -> Iterator[Node]:
    """The operations of a TensorFlow graph that are computed from more than the size of what it is given."""
    held = {tensor.name for tensor in graph.internal_captures}
    given = {tensor.name for tensor in graph.inputs} - held
    for node in graph.get_operations():
        if node.type not in ONLY_SIZES and any(tensor.name in given for tensor in node.inputs):
            given |= {tensor.name for tensor in node.outputs}
            yield node.type, [*node.inputs, *node.outputs]


def equations_of(jaxpr: Any) -> Iterator[Node]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name, [one.aval for one in (*equation.invars, *equation.outvars)]
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations_of(inner)


def is_one(node: Node) -> bool:
    name, tensors = node
    if name in BRANCHES:
        return True
    kind = KINDS.get(name, "truth" if name in COMPARISONS else None)
    if kind is None:
        return False
    tensors = tensors[:1] if kind == "extreme" else tensors[-1:]
    return any(not has_rows(getattr(tensor, "shape", None)) for tensor in tensors)


def has_rows(shape: Any) -> bool:
    """Whether its first dimension is that of the samples, as far as it is known."""
    rank = getattr(shape, "rank", -1)  # TensorFlow's; None where it is not known
    if shape is None or rank is None:
        return False
    return len(shape) > 0 and shape[0] in (None, ROWS)
