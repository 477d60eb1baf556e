"""The pipeline that an interleave or flat_map opens for every element, read from the traced graph of its function."""

import re
from typing import Any

from legroom.engines.host.elements import size_of_spec
from legroom.engines.host.kinds import NUMBERS, SAME_ELEMENTS, kind_of
from legroom.engines.host.span import NOTHING, Span
from legroom.engines.host.stages import Stage

DATASET_INPUTS = ("input_dataset", "input_datasets", "another_dataset", "data_input_datasets")


def read_inner(graph: Any, element: Span) -> Stage | None:
    """The stage that a function returns; its last elements are the interleave's, whose size is known better."""
    if not graph.outputs:
        return None
    return read_operation(graph.outputs[0].op, element)


def named_inputs(op: Any) -> dict[str, list[Any]]:
    """An operation's inputs by the names of its arguments, several under one name where it takes a list."""
    tensors, found, start = list(op.inputs), {}, 0
    for argument in op.op_def.input_arg:
        count = 1
        if argument.number_attr:
            count = int(op.get_attr(argument.number_attr))
        elif argument.type_list_attr:
            count = len(op.get_attr(argument.type_list_attr))
        found[argument.name] = tensors[start : start + count]
        start += count
    return found


def static_number(inputs: dict[str, list[Any]], name: str) -> int | None:
    import tensorflow as tf

    tensors = inputs.get(name)
    value = tf.get_static_value(tensors[0]) if tensors else None
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def read_operation(op: Any, element: Span | None = None) -> Stage:
    """One dataset operation, with those before it. A dataset that comes in as an argument is a window: counted there."""
    while op.type in ("Identity", "StopGradient") and op.inputs:
        op = op.inputs[0].op
    name = re.sub(r"V[0-9]$", "", op.type)
    if not name.endswith("Dataset"):
        return Stage("argument", name, components=0)
    kind, inputs = kind_of(name), named_inputs(op)
    befores = tuple(read_operation(item.op) for key in DATASET_INPUTS for item in inputs.get(key, ()))
    count = static_number(inputs, NUMBERS.get(kind, "count"))
    size, components = size_of_operation(op, count if kind == "batch" else None)
    if element is not None:
        size = element
    elif kind in SAME_ELEMENTS and befores and befores[0].kind != "argument":
        size = befores[0].element
    return Stage(
        kind if kind != "source" else "range",
        name.removesuffix("Dataset").lower(),
        size,
        components,
        count=count if name != "FlatMapDataset" else 1,
        parallel=static_number(inputs, "num_parallel_calls"),
        block=static_number(inputs, "block_length") or 1,
        inputs=with_elements(befores, size, kind),
    )


def with_elements(befores: tuple[Stage, ...], element: Span, kind: str) -> tuple[Stage, ...]:
    """Readers whose element size is known only from the stage after them, which leaves elements as they are."""
    from dataclasses import replace

    if kind not in SAME_ELEMENTS:
        return befores
    return tuple(item if item.kind == "argument" else replace(item, element=element) for item in befores)


def size_of_operation(op: Any, batch: int | None) -> tuple[Span, int]:
    import tensorflow as tf

    try:
        shapes, types = op.get_attr("output_shapes"), op.get_attr("output_types")
    except ValueError:
        return NOTHING, 1
    specs = [tf.TensorSpec(tf.TensorShape(shape), dtype) for shape, dtype in zip(shapes, types, strict=False)]
    size, components, _ = size_of_spec(specs, batch)
    return size, components
