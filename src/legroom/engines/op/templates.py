"""A TensorFlow graph read once into light records, so that the body of a loop can be laid out a thousand times.

Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.framework.function_def_to_graph`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from legroom.engines.op.ops import Array

ATTRIBUTES = frozenset(
    (
        *("T", "strides", "padding", "data_format", "dilations", "explicit_paddings", "ksize", "fused_ops", "num_args"),
        *(
            "transpose_a",
            "transpose_b",
            "adj_x",
            "adj_y",
            "equation",
            "keep_dims",
            "is_training",
            "axis",
            "N",
            "epsilon",
        ),
        *(
            "rnn_mode",
            "input_mode",
            "direction",
            "dropout",
            "num_proj",
            "time_major",
            "Tidx",
            "SrcT",
            "DstT",
            "num_split",
        ),
        *(
            "use_nesterov",
            "Tindices",
            "batch_dims",
            "dtype",
            "element_dtype",
            "parallel_iterations",
            "exclusive",
            "reverse",
        ),
        *(
            "body",
            "cond",
            "f",
            "then_branch",
            "else_branch",
            "branches",
            "activation_mode",
            "num",
            "shrink_axis_mask",
            "_XlaMustCompile",
        ),
    )
)
# On a node that stands for a loop (`jumps.py`): the names of its parts, and how many turns may be open at once.
BODY, CONDITION, PARALLEL = "_legroom_body", "_legroom_condition", "_legroom_parallel"


@dataclass(frozen=True, slots=True)
class Part:
    """A loop's body or condition as a GraphDef: the tensors that go in and come out, and its nodes' places in the graph that runs."""

    definition: Any
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    places: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Template:
    """One node of a graph. Inputs and outputs are names of tensors (`node:0`); an array's dimension is None where TensorFlow
    cannot tell it from the graph."""

    operation: Any
    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arrays: tuple["Array | None", ...]
    dtypes: tuple[str, ...]
    controls: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sketch:
    """A graph's nodes in an order in which they can run; the names of what goes in and what comes out."""

    nodes: tuple[Template, ...]
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()


def read_graph(definition: Any, places: Mapping[str, int] | None = None) -> Sketch:
    """A GraphDef, with the shapes that TensorFlow infers for it; its nodes by their places, where these are known."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(definition, name="")
    nodes = read_nodes(graph, definition)
    return Sketch(nodes if places is None else in_order(nodes, places))


def read_library(definition: Any) -> Any:
    """A graph that knows the functions of a GraphDef, and nothing else."""
    import tensorflow as tf

    graph = tf.Graph()
    functions = type(definition)()
    functions.library.CopyFrom(definition.library)
    functions.versions.CopyFrom(definition.versions)
    with graph.as_default():
        tf.graph_util.import_graph_def(functions, name="")
    return graph


def read_function(function: Any, shapes: list[tuple[int, ...]], library: Any) -> Sketch:
    """A function of the library, with the shapes that it has for arguments of these shapes."""
    import tensorflow as tf
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

    given = [tf.TensorShape(shape) for shape in shapes]
    with library.as_default():
        graph = function_def_to_graph(without_declared_shapes(function, given), input_shapes=given)
    return Sketch(
        read_nodes(graph, graph.as_graph_def()),
        tuple(tensor.name for tensor in graph.inputs),
        tuple(tensor.name for tensor in graph.outputs),
        tuple(op.name for op in graph.control_outputs),
    )


def read_part(part: Part, shapes: list[tuple[int, ...]], library: Any) -> Sketch:
    """A loop's part, with the shapes that it has for arguments of these shapes."""
    import tensorflow as tf

    definition = type(part.definition)()
    definition.CopyFrom(part.definition)
    for node, shape in zip(definition.node, shapes, strict=False):
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    definition.library.CopyFrom(library)
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(definition, name="")
    return Sketch(in_order(read_nodes(graph, definition), part.places), part.arguments, part.results)


def without_declared_shapes(function: Any, shapes: list[Any]) -> Any:
    """The function without what it says of its arguments' shapes, which TensorFlow prefers to what is given, if that fits."""
    import tensorflow as tf

    copy = type(function)()
    copy.CopyFrom(function)
    for i, shape in enumerate(shapes):
        attributes = copy.arg_attr[i].attr if i in copy.arg_attr else {}
        if "_output_shapes" in attributes:
            declared = attributes["_output_shapes"].list.shape or [attributes["_output_shapes"].shape]
            if tf.TensorShape(declared[0]).is_compatible_with(shape):
                del attributes["_output_shapes"]
    return copy


def read_nodes(graph: Any, definition: Any) -> tuple[Template, ...]:
    by_name = {node.name: node for node in definition.node}
    return tuple(
        read_node(operation, by_name[operation.name])
        for operation in graph.get_operations()
        if operation.name in by_name
    )


def read_node(operation: Any, node: Any) -> Template:
    outputs = operation.outputs
    attributes = {name: plain(node.attr[name]) for name in node.attr if name in ATTRIBUTES}
    if BODY in node.attr:
        names = {"body": BODY, "cond": CONDITION, "parallel_iterations": PARALLEL}
        attributes = {name: plain(node.attr[ours]) for name, ours in names.items()}
    data = tuple(full_name(name) for name in node.input if not name.startswith("^"))
    return Template(
        operation=operation,
        name=node.name,
        kind="While" if BODY in node.attr else node.op,
        inputs=data,
        outputs=tuple(f"{node.name}:{k}" for k in range(len(outputs))),
        arrays=tuple(array_of(output) for output in outputs),
        dtypes=tuple(output.dtype.base_dtype.name for output in outputs),
        controls=tuple(name[1:] for name in node.input if name.startswith("^")),
        attributes=attributes,
    )


def full_name(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def array_of(output: Any) -> Array | None:
    dtype = output.dtype.base_dtype.name
    if dtype in ("resource", "variant"):
        return Array((), dtype)
    return Array(tuple(output.shape.as_list()), dtype) if output.shape.is_fully_defined() else None


def plain(value: Any) -> Any:
    """An AttrValue as plain Python: strings decoded, lists as tuples, dtypes and functions by name."""
    import tensorflow as tf

    kind = value.WhichOneof("value")
    if kind == "s":
        return value.s.decode(errors="replace")
    if kind == "type":
        return tf.as_dtype(value.type).base_dtype.name
    if kind == "func":
        return value.func.name
    if kind == "list":
        found = value.list
        items = found.s or found.i or found.f or found.b or found.type or found.func
        return tuple(
            item.decode(errors="replace") if isinstance(item, bytes) else getattr(item, "name", item) for item in items
        )
    return getattr(value, kind) if kind in ("i", "f", "b") else None


def in_order(nodes: Sequence[Template], places: Mapping[str, int]) -> tuple[Template, ...]:
    """Nodes by their places; one that has none comes right after the last of those that it waits for. None comes before
    what it waits for."""
    known: dict[str, int] = {}
    waits: dict[str, set[str]] = {}
    readers: dict[str, list[int]] = {}
    names = {node.name for node in nodes}
    for number, node in enumerate(nodes):
        waits[node.name] = {name.split(":")[0] for name in (*node.inputs, *node.controls)} & names
        known[node.name] = places.get(node.name, max((known.get(name, -1) for name in waits[node.name]), default=-1))
        for name in waits[node.name]:
            readers.setdefault(name, []).append(number)
    ready = [(known[node.name], number) for number, node in enumerate(nodes) if not waits[node.name]]
    heapify(ready)
    found: list[Template] = []
    while ready:
        node = nodes[heappop(ready)[1]]
        found.append(node)
        for number in readers.get(node.name, ()):
            waiting = waits[nodes[number].name]
            waiting.discard(node.name)
            if not waiting:
                heappush(ready, (known[nodes[number].name], number))
    return tuple(found)
