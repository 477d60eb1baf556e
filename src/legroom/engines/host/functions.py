"""What one call of a `map` function holds, read from the graph that tf.data traced: its tensors from birth to last use.

Constants in that graph (arrays that the function closes over) are counted apart. Tested with TensorFlow 2.21.
"""

from math import prod
from typing import Any

from legroom.engines.host.span import Span, exactly, ordered

SMALL_BYTES = 1_000_000  # constants below this are not worth a word
VIEWS = ("Identity", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "IdentityN", "EnsureShape")
IN_PLACE = (
    *("Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "Maximum", "Minimum", "Neg", "Exp", "Sqrt", "Square"),
    *("Relu", "Tanh", "Sigmoid", "Abs", "Pow", "SquaredDifference", "Log", "Floor", "Round"),
)
OPAQUE = ("PyFunc", "EagerPyFunc", "PyFuncStateless")


def graph_of(dataset: Any) -> Any | None:
    """The traced graph of a stage's function, if it has one."""
    wrapper = getattr(dataset, "_map_func", None)
    function = getattr(wrapper, "function", None)
    return getattr(function, "graph", None)


def tensor_bytes(tensor: Any, batch: int | None) -> int | None:
    """Bytes of a graph's tensor; None where a dimension is open. A first open dimension is the batch."""
    if tensor.dtype.name in ("variant", "resource", "string") or not tensor.dtype.size:
        return 0
    if tensor.shape.rank is None:
        return None
    sizes = [None if size is None else int(size) for size in tensor.shape]
    if sizes and sizes[0] is None and batch is not None:
        sizes[0] = batch
    known = [size for size in sizes if size is not None]
    return None if len(known) < len(sizes) else prod(known) * int(tensor.dtype.size)


def constant_bytes(graph: Any) -> int:
    """Arrays written into the graph, and into those of functions that it calls, are not small things."""
    sizes = [tensor_bytes(op.outputs[0], None) or 0 for op in graph.get_operations() if op.type == "Const"]
    return sum(size for size in sizes if size >= SMALL_BYTES)


def is_identity(graph: Any | None) -> bool:
    """Whether a function only passes on, or rearranges, what it is given."""
    return graph is not None and all(op.type in ("Placeholder", "NoOp", *VIEWS) for op in graph.get_operations())


def is_stateful(graph: Any) -> bool:
    """Whether tf.data leaves this function's calls in order, one at a time: it draws random numbers or calls Python."""
    return any(
        op.op_def is not None and op.op_def.is_stateful and op.type not in ("Placeholder", "PartitionedCall")
        for op in graph.get_operations()
    )


def work_of(graph: Any, batch: int | None, elements: tuple[Span, Span]) -> tuple[Span, bool]:
    """What a call holds at its fullest, `elements` being its input and output; and whether all of it could be read."""
    before, after = elements
    operations = graph.get_operations()
    sizes: dict[int, int] = {}
    complete = not any(op.type in OPAQUE for op in operations)
    last_use: dict[int, int] = {}
    for moment, op in enumerate(operations):
        for tensor in op.inputs:
            last_use[id(tensor)] = moment
    for tensor in graph.outputs:
        last_use[id(tensor)] = len(operations)
    live = peak = 0
    for moment, op in enumerate(operations):
        if op.type in ("Const", "Placeholder"):
            continue
        born = 0
        for tensor in op.outputs:
            size = tensor_bytes(tensor, batch)
            complete = complete and size is not None
            sizes[id(tensor)] = 0 if op.type in VIEWS else (size or 0)
            born += sizes[id(tensor)]
        dying = {id(tensor) for tensor in op.inputs if last_use.get(id(tensor)) == moment}
        freed = sum(sizes.get(key, 0) for key in dying)
        if op.type in IN_PLACE and born and any(sizes.get(key, 0) == born for key in dying):
            live, freed = live - born, freed - born
        live += born
        peak = max(peak, live)
        live -= freed
        live -= sum(sizes[id(tensor)] for tensor in op.outputs if id(tensor) not in last_use)
    likely = before + exactly(peak).at_least(after)
    return ordered(likely.low, likely.size, likely.high if complete else likely.high + after.high * 2), complete
