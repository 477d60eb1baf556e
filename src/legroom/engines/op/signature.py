"""What TensorFlow's registry says of an eager operation: attributes as plain Python, the dtypes and shapes of outputs.

Shapes come from TensorFlow's own shape functions and are kept, since a training step repeats itself. A size that depends
on values nobody has (`tf.where`, `tf.unique`) is taken as large as it can be.
Private names used, tested with TensorFlow 2.21.0: `framework.op_def_registry`, `framework.function_def_to_graph`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from legroom.engines.op import stack
from legroom.engines.op.fake_device import FakeDevice
from legroom.engines.op.ops import Array

INDICES = ("int32", "int64")
SAME_MEMORY = ("Identity", "ReadVariableOp", "Reshape", "StopGradient", "PreventGradient", "Squeeze", "ExpandDims")
UP_TO_INPUT = ("Where", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "ListDiff", "DynamicPartition")


@dataclass(frozen=True, slots=True)
class Signature:
    """One operation with its attributes, the same for all its calls with these inputs."""

    kind: str
    attributes: dict[str, Any]
    outputs: tuple[Array, ...]
    open: bool  # some size was not known from shapes
    stateful: bool


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operation: what goes in, and the values that matter to its shapes as handles and as bytes."""

    op: int
    kind: str
    inputs: tuple[Array, ...]
    values: tuple[int | None, ...]
    raw_values: tuple[bytes | None, ...]
    known: tuple[int, ...] | None  # handles of all values, if all are known
    count: int  # how many outputs there is room for


class Signatures:
    """Signatures by operation, attributes and inputs."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.known: dict[Any, Signature] = {}

    def attributes(self, op: int) -> dict[str, Any]:
        """The attributes of an operation as AttrValues."""
        from tensorflow.core.framework import attr_value_pb2

        return dict(attr_value_pb2.NameAttrList.FromString(self.device.attributes_of(op)).attr.items())

    def find(self, call: Call) -> Signature:
        attributes = self.attributes(call.op)
        plain = tuple(sorted((name, value.SerializeToString()) for name, value in attributes.items()))
        key = (call.kind, plain, call.inputs, call.raw_values)
        signature = self.known.get(key)
        if signature is None:
            signature = self.known[key] = self.read(call, attributes)
        return signature

    def is_function(self, kind: str) -> bool:
        return definition_of(kind) is None

    def read(self, call: Call, attributes: dict[str, Any]) -> Signature:
        definition = definition_of(call.kind)
        if definition is None:
            return read_function(call)
        defaults = {attr.name: attr.default_value for attr in definition.attr if attr.HasField("default_value")}
        complete = defaults | attributes
        dtypes = list(output_dtypes(definition, complete))
        shapes: list[tuple[int, ...] | None] = []
        if dtypes:
            shapes = self.device.infer_shapes(call.op, [array.shape for array in call.inputs], call.values)
        largest = prod(call.inputs[0].shape) if call.kind in UP_TO_INPUT and call.inputs else 1
        arrays = tuple(Array(closed(shape, largest), dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
        is_open = any(shape is None or min(shape, default=0) < 0 for shape in shapes)
        plain = {name: plain_attribute(value) for name, value in complete.items()}
        return Signature(call.kind, plain | known_inputs(call), arrays, is_open, definition.is_stateful)


def known_inputs(call: Call) -> dict[str, Any]:
    """The integers that go in ("values": {1: (0, 2, 1)}): axes, sizes, permutations."""
    import numpy as np

    values = {
        index: tuple(np.frombuffer(raw, array.dtype).tolist())
        for index, (raw, array) in enumerate(zip(call.raw_values, call.inputs, strict=True))
        if raw is not None and array.dtype in INDICES
    }
    return {"values": values} if values else {}


def definition_of(kind: str) -> Any:
    """The OpDef, or None for a function."""
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(kind)


def closed(shape: tuple[int, ...] | None, largest: int) -> tuple[int, ...]:
    """A shape without unknown sizes: the first takes all that can be there."""
    if shape is None:
        return (largest,)
    first = next((axis for axis, size in enumerate(shape) if size < 0), None)
    return tuple(largest if axis == first else 1 if size < 0 else size for axis, size in enumerate(shape))


def read_function(call: Call) -> Signature:
    """A `tf.function` that is called as one operation: the outputs that it was traced with."""
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.framework import function_def_to_graph

    definition = context.context().get_function_def(call.kind)
    outputs = stack.function_outputs(call.kind)
    if outputs is None or not all(output.shape.is_fully_defined() for output in outputs):
        shapes = [tf.TensorShape(None if array.dtype == "resource" else array.shape) for array in call.inputs]
        outputs = function_def_to_graph.function_def_to_graph(definition, input_shapes=shapes).outputs
    shapes = [
        None if output.shape.rank is None else tuple(-1 if size is None else size for size in output.shape)
        for output in outputs
    ]
    is_open = not all(output.shape.is_fully_defined() for output in outputs)
    arrays = tuple(Array(closed(shape, 1), output.dtype.name) for shape, output in zip(shapes, outputs, strict=True))
    return Signature(call.kind, {"aliases": tuple(aliases(definition))}, arrays, is_open, True)


def aliases(definition: Any) -> Iterator[str | None]:
    """For each output of a function the input or the earlier output whose memory it shares, or None: "input_1"."""
    nodes = {node.name: node for node in definition.node_def}
    known = {argument.name: f"input_{index}" for index, argument in enumerate(definition.signature.input_arg)}

    def source(tensor: str) -> str:
        node = nodes.get(tensor.split(":", maxsplit=1)[0])
        return tensor if node is None or node.op not in SAME_MEMORY else source(node.input[0])

    for index, argument in enumerate(definition.signature.output_arg):
        origin = source(definition.ret[argument.name])
        yield known.get(origin)
        known.setdefault(origin, f"output_{index}")


def output_dtypes(definition: Any, attributes: dict[str, Any]) -> Iterator[str]:
    for argument in definition.output_arg:
        if argument.type_list_attr:
            yield from (dtype_name(dtype) for dtype in attributes[argument.type_list_attr].list.type)
            continue
        dtype = attributes[argument.type_attr].type if argument.type_attr else argument.type
        count = attributes[argument.number_attr].i if argument.number_attr else 1
        yield from [dtype_name(dtype)] * count


@cache
def dtype_name(dtype: int) -> str:
    import tensorflow as tf

    return str(tf.dtypes.as_dtype(dtype).name)


def plain_attribute(value: Any) -> Any:
    """An AttrValue as plain Python."""
    field = value.WhichOneof("value")
    if field is None:
        return None
    content = getattr(value, field)
    if field == "list":
        return next((tuple(plain_item(name, item) for item in items) for name, items in listed(content)), ())
    return plain_item(field, content)


def listed(content: Any) -> Iterator[tuple[str, Any]]:
    for field, items in content.ListFields():
        yield field.name, items


def plain_item(field: str, content: Any) -> Any:
    if field == "s":
        return content.decode(errors="replace")
    if field == "type":
        return dtype_name(content)
    if field == "shape":
        return None if content.unknown_rank else tuple(dimension.size for dimension in content.dim)
    if field == "func":
        return content.name
    return None if field in ("tensor", "placeholder") else content
