"""A model as the tree of what it runs: nested Functional models are opened, every other layer or operation is one leaf.

Sizes are per sample and from static shapes only; a size that is not known before there is data counts as nothing.

Private names used, tested with Keras 3.15.1: `keras.src.models.functional.Functional`, `Functional._nodes_by_depth`, `Sequential._functional`,
`Layer._flatten_layers`, `Node.operation`, `.is_input`, `.input_tensors`, `.outputs`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from legroom.changes.remat_inside import attention_bytes, attention_flops, held, inside_of, parts_of, width

NEITHER: tuple[str, ...] = (
    "Add",
    "Subtract",
    "Average",
    "Concatenate",
    "Reshape",
    "Flatten",
    "Permute",
    "Transpose",
    "RepeatVector",
    "Identity",
)
NEITHER += ("ZeroPadding", "Cropping", "UpSampling", "GlobalAveragePooling", "AveragePooling", "Rescaling", "Embedding")
NEITHER += ("Dropout", "SpatialDropout", "GaussianNoise")
BY_INPUT: tuple[str, ...] = (
    "Conv",
    "DepthwiseConv",
    "SeparableConv",
    "Dense",
    "EinsumDense",
    "Multiply",
    "Dot",
    "Matmul",
)
BY_INPUT += ("BatchNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization", "UnitNormalization")
BY_OUTPUT = ("ReLU", "Relu", "Softmax", "Sigmoid", "Tanh")
FROM_OUTPUT = ("relu", "relu6", "sigmoid", "tanh", "softmax")


@dataclass(frozen=True, eq=False)
class Unit:
    """A step of a model: the node of a Functional graph, or a sub-layer of a subclassed model (`node` is None)."""

    name: str
    operation: Any
    host: Any
    node: Any
    inside: tuple[Unit, ...] = ()

    def leaves(self) -> Iterator[Unit]:
        if not self.inside:
            yield self
        for unit in self.inside:
            yield from unit.leaves()


def functional_of(model: Any) -> Any | None:
    """The graph that a model's `call` runs through, or None if it runs code of its own."""
    import keras
    from keras.src.models.functional import Functional

    if isinstance(model, keras.Sequential):
        return model._functional if type(model).call is keras.Sequential.call else None
    return model if isinstance(model, Functional) and type(model).call is Functional.call else None


def units_of(model: Any, above: str = "") -> tuple[Unit, ...]:
    functional = functional_of(model)
    if functional is None:
        return tuple(sub_layer_units(model, above))
    nodes = nodes_of(functional)
    calls = Counter(id(node.operation) for node in nodes)
    seen: Counter[int] = Counter()
    units = []
    for node in nodes:
        operation = node.operation
        seen[id(operation)] += 1
        order = f"#{seen[id(operation)]}" if seen[id(operation)] > 1 else ""
        name = f"{above}{operation.name}{order}"
        opened = calls[id(operation)] == 1 and functional_of(operation) is not None
        units.append(Unit(name, operation, functional, node, units_of(operation, f"{name}/") if opened else ()))
    return tuple(units)


def sub_layer_units(model: Any, above: str) -> Iterator[Unit]:
    """The direct sub-layers of a subclassed model, those in lists too, in the order in which they were attached."""
    names: Counter[str] = Counter()
    for layer in model._flatten_layers(include_self=False, recursive=False):
        names[layer.name] += 1
        order = f"#{names[layer.name]}" if names[layer.name] > 1 else ""
        name = f"{above}{layer.name}{order}"
        inside = units_of(layer, f"{name}/") if functional_of(layer) is not None else ()
        yield Unit(name, layer, model, None, inside)


def nodes_of(functional: Any) -> list[Any]:
    """The graph's nodes in the order in which Keras runs them."""
    by_depth = functional._nodes_by_depth
    return [
        node
        for depth in sorted(by_depth, reverse=True)
        for node in by_depth[depth]
        if node.operation and not node.is_input
    ]


def inputs_of(nodes: Sequence[Any]) -> list[Any]:
    """Tensors that a run of nodes takes from before it, each once."""
    made = {id(tensor) for node in nodes for tensor in node.outputs}
    return list({id(t): t for node in nodes for t in node.input_tensors if id(t) not in made}.values())


def outputs_of(nodes: Sequence[Any], functional: Any) -> list[Any]:
    """Tensors made by a run of nodes that somebody after it, or the caller of the model, uses."""
    run = {id(node) for node in nodes}
    used = {id(t) for node in nodes_of(functional) if id(node) not in run for t in node.input_tensors}
    used |= {id(tensor) for tensor in functional.outputs}
    return list({id(t): t for node in nodes for t in node.outputs if id(t) in used}.values())


def needs(operation: Any) -> tuple[bool, bool]:
    """Whether the gradient of an operation reads its inputs, and its outputs; an unknown kind reads both."""
    kind = type(operation).__name__.rstrip("D0123").removesuffix("Transpose") or type(operation).__name__
    activation = getattr(getattr(operation, "activation", None), "__name__", "linear")
    if kind == "Activation":
        return activation not in FROM_OUTPUT, activation in FROM_OUTPUT
    if kind in NEITHER:
        return False, False
    if kind in BY_OUTPUT:
        return False, True
    return True, activation in FROM_OUTPUT if kind in BY_INPUT else True


def saved_outputs(unit: Unit) -> list[Any]:
    """Outputs that plain training keeps: those that the gradient of the node itself or of a reader needs."""
    if needs(unit.operation)[1]:
        return list(unit.node.outputs)
    read = {id(t) for node in nodes_of(unit.host) if needs(node.operation)[0] for t in node.input_tensors}
    read |= {id(tensor) for tensor in unit.host.outputs}
    return [tensor for tensor in unit.node.outputs if id(tensor) in read]


def sample_bytes(tensors: Sequence[Any]) -> int:
    return sum(elements(tensor) * width(tensor.dtype) for tensor in tensors)


def elements(tensor: Any) -> int:
    """Per sample; 0 where a dimension is not known."""
    dimensions = tuple(tensor.shape)[1:]
    return 0 if any(size is None for size in dimensions) else math.prod(dimensions)


def inner_bytes(unit: Unit) -> int:
    """What a layer keeps for its gradient beside its input and output, where its kind tells, or the layers inside it."""
    import keras

    layer = unit.operation
    if unit.node is None:
        found = inside_of(layer)
        return found.kept_bytes - min(found.kept_bytes, found.output_bytes)
    if not isinstance(layer, keras.layers.Layer):
        return 0
    if isinstance(layer, keras.layers.MultiHeadAttention):
        return attention_bytes(layer, *positions_of(unit))
    made_bytes = sum(elements(tensor) for tensor in unit.node.outputs) * width(layer.compute_dtype)
    if type(layer).__module__.partition(".")[0] != "keras" and parts_of(layer):
        return max(0, inside_of(layer).kept_bytes - made_bytes)
    return held(layer, made_bytes)


def positions_of(unit: Unit) -> tuple[int, int]:
    """How many queries and how many values an attention layer compares."""
    tensors = unit.node.input_tensors
    query, value = tensors[0], tensors[1] if len(tensors) > 1 else tensors[0]
    return elements(query) // (query.shape[-1] or 1), elements(value) // (value.shape[-1] or 1)


def flops_of(unit: Unit) -> int:
    """Operations of one sample's forward pass: two per weight of a matrix and position, one per element otherwise."""
    import keras

    if unit.node is None:
        return inside_of(unit.operation).flops
    made = sum(elements(tensor) for tensor in unit.node.outputs)
    if not isinstance(unit.operation, keras.layers.Layer) or isinstance(unit.operation, keras.layers.Embedding):
        return made
    first = unit.node.outputs[0]
    positions = elements(first) // (first.shape[-1] or 1) if len(first.shape) > 2 else 1
    matrices = sum(
        2 * math.prod(weight.shape) * positions for weight in unit.operation.weights if len(weight.shape) > 1
    )
    attention = isinstance(unit.operation, keras.layers.MultiHeadAttention)
    scores = attention_flops(unit.operation, *positions_of(unit)) if attention else 0
    return int(matrices + scores + made)
