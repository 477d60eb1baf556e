"""What a traced TensorFlow function does to variables and how much it can allocate, read from its graph.

Private names used, tested with TensorFlow 2.21.0: `auto_control_deps_utils.get_read_only_resource_input_indices_graph` and
`get_read_write_resource_inputs` (what TensorFlow orders its own graphs by), `FuncGraph.captures`,
`Graph._get_function`.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

ALLOCATION = 256  # bytes: the allocator rounds up to whole ones
FREE = (  # ops whose results are other tensors' memory, or a few bytes
    *(
        "Placeholder",
        "ReadVariableOp",
        "Identity",
        "IdentityN",
        "NoOp",
        "Const",
        "AssignVariableOp",
        "Reshape",
        "Squeeze",
    ),
    *("ExpandDims", "AssignAddVariableOp", "AssignSubVariableOp", "Shape", "StopGradient", "VarHandleOp"),
)
CALLS = ("then_branch", "else_branch", "f", "body", "cond", "branches")


def written_variables(concrete: Any) -> list[Any]:
    """The variables that a call of this function may assign, each once."""
    from tensorflow.python.framework import auto_control_deps_utils as dependencies

    graph = concrete.graph
    read_only = set(dependencies.get_read_only_resource_input_indices_graph(graph))
    written = {id(tensor) for number, tensor in enumerate(graph.inputs) if number not in read_only}
    handles = {id(outer) for outer, inner in graph.captures if id(inner) in written}
    return [variable for variable in graph.variables if id(variable.handle) in handles]


def read_after(graph: Any, operations: int, variables: Sequence[Any]) -> bool:
    """Whether an op that was traced after so many others takes one of these variables, or a function that does."""
    handles = {id(variable.handle) for variable in variables}
    inner = {id(tensor) for outer, tensor in graph.captures if id(outer) in handles}
    later = graph.get_operations()[operations:]
    return any(id(tensor) in inner for operation in later for tensor in operation.inputs)


def allocated_bytes(graph: Any, unknown_bytes: int = 0) -> int:
    """The sum of all that its ops can allocate in one run, as if nothing were freed; loops count once.

    Results whose shape is not known beforehand count as `unknown_bytes`.
    """
    total = 0
    for operation in graph.get_operations():
        if operation.type not in FREE:
            total += sum(rounded(tensor, unknown_bytes) for tensor in operation.outputs)
        total += sum(allocated_bytes(inner, unknown_bytes) for inner in inner_graphs(operation))
    return total


def rounded(tensor: Any, unknown_bytes: int) -> int:
    if not tensor.dtype.size:
        return 0
    sizes = tensor.shape.as_list() if tensor.shape.rank is not None else [None]
    size = unknown_bytes if None in sizes else prod(sizes) * tensor.dtype.size
    return -(-max(size, 1) // ALLOCATION) * ALLOCATION


def inner_graphs(operation: Any) -> Iterator[Any]:
    """The graphs of the functions that an op calls: branches, loops, plain calls."""
    for name in CALLS:
        try:
            value = operation.get_attr(name)
        except ValueError:
            continue
        for function in value if isinstance(value, list) else [value]:
            found = operation.graph._get_function(getattr(function, "name", ""))
            graph = getattr(found, "graph", None)
            if graph is not None:
                yield graph
