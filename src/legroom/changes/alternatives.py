"""The same model with one thing different: a smaller input, a narrower layer, pooling in the place of a Flatten.

A copy is made for each, by `keras.models.clone_model`, which works for Sequential and Functional models whose layers tell their
configuration; the user's model is left alone. Private names used, tested with Keras 3.15.1: those of `remat_units`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from legroom.capture.batch import ArraySpec, Tree, map_specs
from legroom.capture.frames import describe
from legroom.capture.keras_fit import KerasStep, layer_names
from legroom.changes.drawn import nothing_drawn
from legroom.changes.remat_units import functional_of, nodes_of
from legroom.errors import InputError
from legroom.records.alternative import Alternative

LARGEST_COPY = 250_000_000  # numbers in weights: a copy is really made
WIDTHS = {"units": "units", "filters": "filters"}  # how a layer's configuration calls its width
SMALLEST_SIDE = 8
EVEN = 32  # many networks halve their images five times, and want to meet again


def alternatives_of(captured: KerasStep, holders: Sequence[str]) -> list[Alternative]:
    """What could be different, the likeliest first, for a model in which these layers hold the most. None need be possible."""
    model = captured.model
    graph = functional_of(model)
    if graph is None or model.count_params() > LARGEST_COPY:
        return []
    layers = {layer.name: layer for layer in model.layers}
    top = [layers[name] for name in holders if name in layers]
    return [*pooled(graph, top), *smaller_input(captured, graph), *narrower(top)]


def pooled(graph: Any, top: Sequence[Any]) -> Iterator[Alternative]:
    """A Dense after a Flatten has a weight for each pixel; after pooling, one for each channel."""
    nodes = nodes_of(graph)
    makers = {id(tensor): node for node in nodes for tensor in node.outputs}
    for layer in top:
        node = next((node for node in nodes if node.operation is layer), None)
        before = None if type(layer).__name__ != "Dense" or node is None else makers.get(id(node.input_tensors[0]))
        while before is not None and type(before.operation).__name__ == "Dropout":
            before = makers.get(id(before.input_tensors[0]))
        if before is not None and type(before.operation).__name__ == "Flatten":
            sides = len(before.input_tensors[0].shape) - 2
            if sides in (1, 2, 3):
                flatten, pooling = before.operation.name, f"GlobalAveragePooling{sides}D"
                text = f"if {pooling} stood before `{layer.name}` instead of `{flatten}`"
                yield Alternative("pooling", flatten, (sides,), text)


def smaller_input(captured: KerasStep, graph: Any) -> Iterator[Alternative]:
    """Three quarters on each side; if that cannot be cut in half often enough, the nearest size that can."""
    x = captured.data[0] if isinstance(captured.data, tuple) else captured.data
    if len(graph.inputs) != 1 or len(graph.outputs) != 1 or not isinstance(x, ArraySpec) or len(x.shape) < 3:
        return
    sides = tuple(int(size or 0) for size in x.shape[1:-1])
    if min(sides) < SMALLEST_SIDE or len(graph.inputs[0].shape) != len(x.shape):
        return
    exactly = tuple(side * 3 // 4 for side in sides)
    evenly = tuple(max(EVEN, round(side * 3 / 4 / EVEN) * EVEN) for side in sides)
    for size in dict.fromkeys((exactly, evenly)):
        if all(new < old for new, old in zip(size, sides, strict=True)):
            text = f"if the input were {times(size)} instead of {times(sides)}"
            yield Alternative("input", "", size, text)


def times(sizes: Sequence[int]) -> str:
    return "×".join(str(size) for size in sizes) if len(sizes) > 1 else f"{sizes[0]} long"


def narrower(top: Sequence[Any]) -> Iterator[Alternative]:
    for layer in top:
        for key, word in WIDTHS.items():
            width = getattr(layer, key, None)
            if isinstance(width, int) and width > 1:
                text = f"if `{layer.name}` were half as wide ({width // 2} {word} instead of {width})"
                yield Alternative("width", layer.name, (width // 2,), text)


def altered(captured: KerasStep, alternative: Alternative) -> KerasStep:
    """The step of a copy of the model that has it so; InputError where there can be none."""
    model = captured.model
    try:
        with nothing_drawn(), known_functions(model):
            copy = copied(model, alternative)
    except Exception as error:
        raise InputError(f"The model cannot be copied: {describe(error)}") from error
    if type(copy) is not type(model) or not copy.compiled:
        raise InputError(f"A {type(model).__name__} cannot be copied with all that it does in training.")
    was, now = (tuple(one.outputs[0].shape) for one in (model, copy))
    if alternative.kind != "input" and was != now:
        raise InputError("The model's output would be another one.")
    step = replace(captured.step, layers=layer_names(copy))
    data = resized_data(captured.data, alternative.size, was, now) if alternative.kind == "input" else captured.data
    return replace(captured, model=copy, data=data, step=step)


def copied(model: Any, alternative: Alternative) -> Any:
    import keras

    def copy_layer(layer: Any) -> Any:
        config = layer.get_config()
        if layer.name != alternative.layer:
            return layer.__class__.from_config(config)
        if alternative.kind == "pooling":
            pooling = getattr(keras.layers, f"GlobalAveragePooling{alternative.size[0]}D")
            return pooling(name=layer.name, data_format=layer.data_format, dtype=layer.dtype_policy)
        key = next(key for key in WIDTHS if key in config)
        return layer.__class__.from_config({**config, key: alternative.size[0]})

    if alternative.kind != "input":
        return keras.models.clone_model(model, clone_function=copy_layer)
    given = model.inputs[0]
    sides = [None if old is None else new for old, new in zip(given.shape[1:-1], alternative.size, strict=True)]
    tensor = keras.Input(batch_shape=(given.shape[0], *sides, given.shape[-1]), dtype=given.dtype)
    wanted = tensor if isinstance(model, keras.Sequential) else keras.tree.pack_sequence_as(model.input, [tensor])
    return keras.models.clone_model(model, input_tensors=wanted, clone_function=copy_layer)


def resized_data(data: Tree, size: Sequence[int], was: Sequence[Any], now: Sequence[Any]) -> Tree:
    """The batch of smaller inputs; labels that have the sides of the output, a map of pixels say, get those of the new one."""

    def label(spec: ArraySpec) -> ArraySpec:
        pairs = zip(spec.shape[1:], (*was[1:], *spec.shape), (*now[1:], *spec.shape), strict=False)
        return ArraySpec((spec.shape[0], *(new if old == one else one for one, old, new in pairs)), spec.dtype)

    x = data[0] if isinstance(data, tuple) else data
    smaller = ArraySpec((x.shape[0], *size, x.shape[-1]), x.dtype)
    if not isinstance(data, tuple):
        return smaller
    return (smaller, *(map_specs(lambda spec: label(spec) if spec.shape else spec, part) for part in data[1:]))


@contextmanager
def known_functions(model: Any) -> Iterator[None]:
    """A copy is compiled from a configuration, in which a loss of the user's own is only a name."""
    import keras

    loss = getattr(model, "loss", None)
    name = getattr(loss, "__name__", None) or type(loss).__name__
    own = loss if hasattr(loss, "__name__") else type(loss)
    with keras.saving.custom_object_scope({name: own} if callable(loss) else {}):
        yield
