"""What a block does beside its results, which a second run would do again: random numbers of its own, assignments. No such block on TensorFlow.

Private names used, tested with TensorFlow 2.21.0: `Graph._get_function`, `tensorflow.python.framework.op_def_registry`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from legroom.changes.host_random import generators_of, states_of
from legroom.changes.own_code import has_own_code
from legroom.changes.remat_block import Block
from legroom.changes.remat_outer import CALLS, nothing_from_outside
from legroom.errors import InputError

HARMLESS = {
    "VarHandleOp",
    "ReadVariableOp",
    "ResourceGather",
    "ResourceGatherNd",
    "VariableShape",
    "VarIsInitializedOp",
}
HARMLESS |= {
    "CheckNumerics",
    "CheckNumericsV2",
    "CudnnRNN",
    "CudnnRNNV2",
    "CudnnRNNV3",
}  # Keras' own RNNs drop out before cuDNN
HARMLESS |= {"Assert", "PrintV2", "Placeholder", "TensorListFromTensor", "EmptyTensorList", "TensorListReserve"}
generators: WeakKeyDictionary[Block, list[Any]] = WeakKeyDictionary()  # that a block's code refers to


def operation_count() -> int:
    import tensorflow as tf

    return len(tf.compat.v1.get_default_graph().get_operations())


@contextmanager
def nothing_drawn(block: Block) -> Iterator[None]:
    """Refuse a block whose code draws random numbers by NumPy or Python: a second run draws others, in a graph too, where it is another trace."""
    if block not in generators:
        generators[block] = generators_of(layers_in(block))
    before = states_of(generators[block])
    yield
    if states_of(generators[block]) != before:
        raise InputError(
            f"The block {block.name!r} cannot be recomputed: its code draws random numbers by NumPy or Python, and would draw others in a second run.",
            "Draw them by keras.random with a SeedGenerator, or leave that layer out.",
        )


def nothing_taken(block: Block) -> AbstractContextManager[None]:
    """Op by op, layers with code that is not Keras' own are listened to."""
    import tensorflow as tf

    if not tf.executing_eagerly() or not any(has_own_code(layer) for layer in layers_in(block)):
        return nullcontext()
    return nothing_from_outside(block.name)


def refuse_side_effects_of_eager_code(block: Block, run: Callable[[list[Any]], Any], given: Sequence[Any]) -> None:
    """The first eager run of a block with layers that are not Keras' own is looked at as a graph beforehand."""
    import tensorflow as tf

    if block.checked or not tf.executing_eagerly():
        return
    block.checked = True
    if not any(has_own_code(layer) for layer in layers_in(block)):
        return

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def look(tensors: list[Any]) -> Any:
        return run(tensors)

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in given]
    refuse_side_effects(block, look.get_concrete_function(specs).graph, 0)


def refuse_side_effects(block: Block, graph: Any, start: int) -> None:
    """TensorFlow's own random numbers and assignments happen again, and differently, in a second run: no such block."""
    kinds = set()
    for operation in graph.get_operations()[start:]:
        kinds |= stateful_kinds(graph, operation.node_def, set())
    if kinds:
        raise InputError(
            f"The block {block.name!r} cannot be recomputed: it runs {', '.join(sorted(kinds))}, which a second run would repeat "
            "with another result.",
            "Draw random numbers by keras.random with a SeedGenerator, keep state in keras.Variable, or leave that layer out.",
        )


def stateful_kinds(graph: Any, node: Any, seen: set[str]) -> set[str]:
    registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
    kind = node.op
    names = [value.func.name for value in node.attr.values() if value.WhichOneof("value") == "func"]
    if kind in CALLS:
        kinds: set[str] = set()
        for name in set(names) - seen:
            seen.add(name)
            function = graph._get_function(name)
            if function is not None:
                for inner in function.cached_definition.node_def:
                    kinds |= stateful_kinds(graph, inner, seen)
        return kinds
    definition = registry.get(kind)
    return {kind} if definition is not None and definition.is_stateful and kind not in HARMLESS else set()


def layers_in(block: Block) -> list[Any]:
    return [inner for layer in block.layers for inner in layer._flatten_layers()]
