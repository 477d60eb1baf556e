"""The arrays that a node makes where the graph alone does not tell: from the values that are known while a step is laid out."""

from typing import Any

from legroom.engines.op.ops import Array
from legroom.engines.op.templates import Template
from legroom.engines.op.values import DTYPES, Evaluator


class Sizes:
    """What is known of a step's tensors while it is laid out: their arrays, and the values of those that decide shapes and turns."""

    def __init__(self) -> None:
        self.tensors: list[Array] = []
        self.variables: list[Array] = []
        self.handles: dict[int, int] = {}  # tensors that are a variable's handle
        self.values: dict[int, Any] = {}
        self.unsized: dict[str, None] = {}  # whose size only running would tell
        self.evaluator = Evaluator()
        self.shapes: dict[Any, tuple[Template, Array]] = {}

    def add(self, array: Array) -> int:
        self.tensors.append(array)
        return len(self.tensors) - 1

    def arrays(self, template: Template, inputs: list[int]) -> tuple[Array, ...]:
        """What the node makes of these inputs."""
        sized = self.sized(template, inputs)
        return tuple(array or self.inferred(template, k, inputs) for k, array in enumerate(sized))

    def forget(self, tensors: int) -> None:
        """All tensors from that one on."""
        del self.tensors[tensors:]
        for ours in (self.values, self.handles):
            for tensor in [tensor for tensor in ours if tensor >= tensors]:
                del ours[tensor]

    def sized(self, template: Template, inputs: list[int]) -> tuple[Array | None, ...]:
        if template.kind == "ReadVariableOp" and inputs[0] in self.handles:
            return (self.variables[self.handles[inputs[0]]],)
        if template.kind == "VariableShape" and inputs[0] in self.handles:
            return (Array((len(self.variables[self.handles[inputs[0]]].shape),), template.dtypes[0]),)
        return template.arrays

    def note_values(self, template: Template, inputs: list[int], outputs: list[int]) -> None:
        if not outputs or template.dtypes[0] not in DTYPES:
            return
        import numpy as np

        found: list[Any] | None = None
        if template.kind in ("Shape", "ShapeN"):
            found = [np.asarray(self.tensors[i].shape, template.dtypes[0]) for i in inputs]
        elif template.kind == "VariableShape" and inputs[0] in self.handles:
            found = [np.asarray(self.variables[self.handles[inputs[0]]].shape, template.dtypes[0])]
        elif template.kind in ("Size", "Rank"):
            shape = self.tensors[inputs[0]].shape
            found = [np.asarray(np.prod(shape) if template.kind == "Size" else len(shape), template.dtypes[0])]
        elif all(i in self.values for i in inputs) and inputs:
            found = self.evaluator.evaluate(template.operation, [self.values[i] for i in inputs])
        if found is not None:
            self.values.update(zip(outputs, found, strict=False))

    def inferred(self, template: Template, position: int, inputs: list[int]) -> Array:
        """The same for each turn of a loop that it is the same for: TensorFlow needs a millisecond to tell."""
        values = self.values
        given = tuple((values[i].shape, values[i].tobytes()) if i in values else self.tensors[i] for i in inputs)
        key = (id(template), position, given)
        if key not in self.shapes:
            self.shapes[key] = template, self.infer(template, position, inputs)  # kept: an id may be used again
        return self.shapes[key][1]

    def infer(self, template: Template, position: int, inputs: list[int]) -> Array:
        """The array of an output whose shape the graph alone does not tell: from the values that are known by now."""
        import tensorflow as tf

        operation = template.operation
        graph = tf.Graph()
        with graph.as_default():
            given = []
            for tensor, original in zip(inputs, operation.inputs, strict=True):
                if tensor in self.values:
                    given.append(tf.constant(self.values[tensor], original.dtype))
                else:
                    array = self.tensors[tensor]
                    shape = None if array.dtype in ("resource", "variant") else array.shape
                    given.append(tf.compat.v1.placeholder(original.dtype, shape))
            made = graph._create_op_internal(
                operation.type,
                given,
                [output.dtype for output in operation.outputs],
                attrs=dict(operation.node_def.attr),
                name="sized",
            )
            shape = made.outputs[position].shape
        if shape.is_fully_defined():
            return Array(tuple(shape.as_list()), template.dtypes[position])
        self.unsized[f"{template.kind} ({template.name})"] = None
        guess = next((self.tensors[i].shape for i in inputs if self.tensors[i].shape), ())
        if shape.rank is None:
            return Array(guess, template.dtypes[position])
        longest = max(guess, default=1)
        return Array(tuple(longest if size is None else size for size in shape.as_list()), template.dtypes[position])
