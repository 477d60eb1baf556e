"""Tensors that a block on TensorFlow takes though nobody gave them to it: through an attribute, a closure, an object of the user's.

A custom gradient knows the block's inputs and variables only, so whatever such a tensor was computed from would lose its gradient.
Those that have none are let pass. In a graph every operation of the block is looked at, and what its outer inputs come from; op by
op every operation is heard.

Private names used, tested with TensorFlow 2.21.0: `FuncGraph.captures`, `FuncGraph._watched_variables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from legroom.changes.hearing import hearing
from legroom.changes.remat_tapes import recorded
from legroom.errors import InputError

READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}
CALLS = {"While", "If", "Case", "StatefulPartitionedCall", "PartitionedCall", "StatelessWhile", "StatelessIf"}
NO_GRADIENT = {"StopGradient", "ZerosLike", "OnesLike"}


def refusal(name: str) -> InputError:
    return InputError(
        f"The block {name!r} cannot be recomputed: its forward pass uses a tensor that it is not given as an argument, "
        "whose gradient would be lost.",
        "Pass it as an argument of the layer's call (a tensor, or a tuple, list or dict of tensors), or leave that layer out of the blocks.",
    )


@contextmanager
def nothing_from_outside(name: str) -> Iterator[None]:
    """Op by op: refuse a block whose operations take what a tape around it has recorded; inside the block none records."""
    found: list[Any] = []

    def heard(kind: Any, inputs: Iterable[Any], *_: Any, graph: Any = None, **__: Any) -> None:
        if graph is None and not found and recorded([tensor for tensor in inputs if differentiable(tensor)]):
            found.append(kind)

    with hearing(heard):
        yield
    if found:
        raise refusal(name)


def refuse_from_outside(name: str, graph: Any, start: int, given: Sequence[Any]) -> None:
    """In a graph: the same of the block whose operations are those from `start` on."""
    operations = graph.get_operations()[start:]
    made = {operation.name for operation in operations if operation.type != "Placeholder"}  # what is captured is one
    known = {tensor.name for tensor in given}
    taken = {tensor.name: tensor for operation in operations for tensor in operation.inputs if differentiable(tensor)}
    outer = [tensor for key, tensor in taken.items() if key not in known and tensor.op.name not in made]
    if outer and learns(outer):
        raise refusal(name)


def differentiable(tensor: Any) -> bool:
    """Lists of tensors are variants."""
    dtype = tensor.dtype
    return bool(dtype.is_floating or dtype.is_complex or dtype.name == "variant")


def learns(tensors: Sequence[Any]) -> bool:
    """Whether they are computed from a weight or from what a function was given, by operations that have gradients."""
    waiting, seen = list(tensors), set()
    while waiting:
        tensor = waiting.pop()
        if not hasattr(tensor, "graph"):  # a value outside of all graphs
            if recorded([tensor]):
                return True
            continue
        operation = tensor.op
        key = id(tensor.graph), tensor.name
        if key in seen or operation.type in NO_GRADIENT:
            continue
        seen.add(key)
        if is_source(tensor.graph, operation):
            return True
        waiting += [outside_of(tensor)] if operation.type == "Placeholder" else filter(differentiable, operation.inputs)
    return False


def is_source(graph: Any, operation: Any) -> bool:
    if operation.type == "Placeholder":
        return outside_of(operation.outputs[0]) is None
    if operation.type not in READS | CALLS:
        return False
    return any(tensor.dtype.name == "resource" and is_trained(graph, tensor) for tensor in operation.inputs)


def outside_of(tensor: Any) -> Any | None:
    """The tensor of a surrounding graph, or of none, that a function's placeholder stands for; None for its arguments."""
    captures = getattr(tensor.graph, "captures", ())
    return next((outer for outer, inner in captures if inner is tensor or inner.name == tensor.name), None)


def is_trained(graph: Any, handle: Any) -> bool:
    """Whether a resource is a variable that is trained; so is one that nobody knows."""
    while hasattr(handle, "graph") and handle.op.type == "Placeholder":
        graph, outer = handle.graph, outside_of(handle)
        if outer is None:
            return True
        handle = outer
    owners = [variable for variable in getattr(graph, "_watched_variables", ()) if variable.handle is handle]
    return not owners or bool(owners[0].trainable)
