"""How blocks enter a live model: on the instance only, and out again without a trace.

A Functional graph is run by `_run_through_graph`, which the instance gets anew, with runs of nodes made into blocks. A sub-layer
of a subclassed model gets a new `call`. Neither appears in a saved model, in its configuration or among its variables.

Private names used, tested with Keras 3.15.1: `Function._run_through_graph`, `Function._get_operation_for_node`,
`Functional._outputs_struct`, `Node.arguments.fill_in`, `keras.src.backend.common.symbolic_scope`, `global_state`
("current_call_ctx").
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from legroom.changes.known_layers import RECOMPUTED
from legroom.changes.remat_block import Block, run
from legroom.changes.remat_leaves import filled, template_of, tensors_in
from legroom.changes.remat_units import Unit, inputs_of, nodes_of, outputs_of

MARK = RECOMPUTED


@dataclass(frozen=True, eq=False)
class Step:
    """Nodes that run one after the other, plainly (`block` is None) or as a block."""

    nodes: tuple[Any, ...]
    block: Block | None
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


def hooked(instance: Any) -> bool:
    return any(hasattr(instance.__dict__.get(name), MARK) for name in ("call", "_run_through_graph"))


def hook(instance: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Gives an instance its own method, past Keras' tracking of attributes; the answer takes it away again."""
    setattr(function, MARK, True)
    instance.__dict__[name] = function

    def undo() -> None:
        if instance.__dict__.get(name) is function:
            del instance.__dict__[name]

    return undo


def hook_graph(functional: Any, groups: Sequence[Sequence[Unit]]) -> list[Callable[[], None]]:
    """Runs each group of a graph's nodes as one block."""
    plain_call, plain_run = functional.call, functional._run_through_graph
    steps = steps_of(functional, groups)
    training: list[Any] = []

    def call(inputs: Any, training_now: Any, mask: Any, others: dict[str, Any]) -> Any:
        training.append(training_now)
        try:
            return plain_call(inputs, training=training_now, mask=mask, **others)
        finally:
            training.pop()

    def call_as_keras(inputs: Any, training: Any = None, mask: Any = None, **others: Any) -> Any:
        return call(inputs, training, mask, others)

    def run_through_graph(inputs: Any, operation_fn: Any = lambda op: op, call_fn: Any = None) -> Any:
        if call_fn is not None or is_symbolic(inputs):
            return plain_run(inputs, operation_fn, call_fn)
        return run_steps(functional, steps, inputs, operation_fn, bool(training and is_training(training[-1])))

    return [hook(functional, "_run_through_graph", run_through_graph), hook(functional, "call", call_as_keras)]


def is_training(value: Any) -> bool:
    """A `training` that is a tensor may be true."""
    return bool(value) if value is None or isinstance(value, bool | int) else True


def is_symbolic(inputs: Any) -> bool:
    """Whether only shapes are asked for, while a model is built."""
    import keras

    scope = importlib.import_module("keras.src.backend.common.symbolic_scope")
    return scope.in_symbolic_scope() or any(isinstance(t, keras.KerasTensor) for t in keras.tree.flatten(inputs))


def steps_of(functional: Any, groups: Sequence[Sequence[Unit]]) -> list[Step]:
    import keras

    starts = {id(group[0].node): group for group in groups}
    members = {id(unit.node) for group in groups for unit in group}
    steps = []
    for node in nodes_of(functional):
        group = starts.get(id(node))
        if group is not None:
            nodes = tuple(unit.node for unit in group)
            layers = tuple(unit.operation for unit in group if isinstance(unit.operation, keras.layers.Layer))
            name = group[0].name if len(group) == 1 else f"{group[0].name} … {group[-1].name}"
            ends = tuple(inputs_of(nodes)), tuple(outputs_of(nodes, functional))
            steps.append(Step(nodes, Block(name, layers), *ends))
        elif id(node) not in members:
            steps.append(Step((node,), None, (), ()))
    return steps


def run_steps(functional: Any, steps: Sequence[Step], inputs: Any, operation_fn: Any, training: bool) -> Any:
    """As `Function._run_through_graph`, with blocks."""
    import keras

    tensors = {id(x): y for x, y in zip(functional.inputs, keras.tree.flatten(inputs), strict=False)}
    for step in steps:
        if step.block is None:
            run_nodes(functional, step.nodes, tensors, operation_fn)
            continue
        here = [id(x) for x in step.inputs if tensors.get(id(x)) is not None]
        nothing = {id(x): None for x in step.inputs if id(x) in tensors and tensors[id(x)] is None}

        def function(values: list[Any], step: Step = step, here: list[int] = here, rest: Any = nothing) -> list[Any]:
            local = dict(zip(here, values, strict=True)) | rest
            run_nodes(functional, step.nodes, local, operation_fn)
            return [local[id(x)] for x in step.outputs if id(x) in local]

        if not all(id(x) in tensors for x in step.inputs):
            run_nodes(functional, step.nodes, tensors, operation_fn)  # Keras skips what cannot be computed
            continue
        outputs = run(step.block, function, [tensors[key] for key in here], training)
        tensors |= zip((id(x) for x in step.outputs), outputs, strict=True)
    found = [tensors[id(x)] for x in functional.outputs]
    return keras.tree.pack_sequence_as(functional._outputs_struct, found)


def run_nodes(functional: Any, nodes: Sequence[Any], tensors: dict[int, Any], operation_fn: Any) -> None:
    import keras

    for node in nodes:
        if any(id(x) not in tensors for x in node.input_tensors):
            continue
        arguments, keywords = node.arguments.fill_in(tensors)
        outputs = operation_fn(functional._get_operation_for_node(node))(*arguments, **keywords)
        tensors |= zip((id(x) for x in node.outputs), keras.tree.flatten(outputs), strict=False)


def hook_layer(unit: Unit) -> list[Callable[[], None]]:
    """Makes every call of one layer a block."""
    import keras

    layer = unit.operation
    plain, block = layer.call, Block(unit.name, (layer,))

    def call(*arguments: Any, **keywords: Any) -> Any:
        if is_symbolic((arguments, keywords)):
            return plain(*arguments, **keywords)
        flat = keras.tree.flatten((arguments, keywords))
        places = [place for place, value in enumerate(flat) if keras.ops.is_tensor(value)]
        templates: list[Any] = []

        def function(values: list[Any]) -> list[Any]:
            leaves = list(flat)
            for place, value in zip(places, values, strict=True):
                leaves[place] = value
            inner, named = keras.tree.pack_sequence_as((arguments, keywords), leaves)
            returned = plain(*inner, **named)
            if not templates:
                templates.append(template_of(unit.name, returned, flat))
            return tensors_in(returned)

        outputs = run(block, function, [flat[place] for place in places], training_around(keywords))
        return filled(templates[0], outputs)

    return [hook(layer, "call", call)]


def training_around(keywords: dict[str, Any]) -> bool:
    """What `training` is for a layer: its argument, or what the layer or model around it was called with."""
    if keywords.get("training") is not None:
        return is_training(keywords["training"])
    state = importlib.import_module("keras.src.backend.common.global_state")
    context = state.get_global_attribute("current_call_ctx")
    return context is None or is_training(context.get_value("training"))
