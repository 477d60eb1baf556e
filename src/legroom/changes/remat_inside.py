"""What a layer that runs code of its own keeps and computes, by the shapes that it and the layers inside it were built with.

How often it calls each of them, and what it computes beside them, its code alone knows: each is counted once. So these numbers say
which layers to try, not what they hold: that is compiled or simulated.

Private names used, tested with Keras 3.15.1: `Layer._build_shapes_dict`, `Layer._flatten_layers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

HOLDING = ("gelu", "silu", "swish", "mish", "softplus", "elu", "selu", "hard_silu", "log_softmax")
Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Inside:
    """Of one sample: bytes that come in and go out, bytes kept for gradients, the output's own among them, and operations."""

    input_bytes: int = 0
    output_bytes: int = 0
    kept_bytes: int = 0
    flops: int = 0


def inside_of(layer: Any) -> Inside:
    """Nothing where shapes are not known."""
    import keras

    shapes = shapes_of(layer)
    read = sum(map(elements, shapes)) * width(layer.compute_dtype)
    made = elements(output_shape(layer, shapes)) * width(layer.compute_dtype)
    if isinstance(layer, keras.layers.MultiHeadAttention) and shapes:
        rows, columns = elements(shapes[0][:-1]), elements(shapes[-1][:-1])
        kept = attention_bytes(layer, rows, columns)
        return Inside(read, made, kept + made, matrices(layer, rows) + attention_flops(layer, rows, columns))
    parts = [inside_of(part) for part in parts_of(layer)]
    if parts:
        made = made or parts[-1].output_bytes
        return Inside(read, made, sum(part.kept_bytes for part in parts), sum(part.flops for part in parts))
    positions = made // (width(layer.compute_dtype) * max(1, last_of(output_shape(layer, shapes))))
    return Inside(read, made, made + held(layer, made), matrices(layer, positions) + made // width(layer.compute_dtype))


def parts_of(layer: Any) -> list[Any]:
    """The layers that it is made of, those of layers that were never built left out; none of a recurrent one, whose cell runs many times."""
    import keras

    inner = [] if isinstance(layer, keras.layers.RNN) else layer._flatten_layers(include_self=False, recursive=False)
    return [part for part in inner if shapes_of(part)]


def shapes_of(layer: Any) -> list[Shape]:
    built = getattr(layer, "_build_shapes_dict", None)
    return list(shapes_in(built)) if built else []


def shapes_in(tree: Any) -> Iterator[Shape]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if not isinstance(tree, list | tuple):
        return
    if all(size is None or isinstance(size, int) for size in tree):
        yield tuple(tree)
        return
    for one in tree:
        yield from shapes_in(one)


def output_shape(layer: Any, shapes: list[Shape]) -> Shape:
    """As the layer says; where it is code that does not, that of what comes in."""
    try:
        found = list(shapes_in([layer.compute_output_shape(*shapes)]))
    except Exception:  # noqa: BLE001 - the user's own
        found = shapes
    return found[0] if found else ()


def elements(shape: Shape) -> int:
    """Per sample; 0 where a dimension is not known."""
    sizes = shape[1:]
    return 0 if not shape or any(size is None for size in sizes) else math.prod(size for size in sizes if size)


def last_of(shape: Shape) -> int:
    return int(shape[-1] or 1) if len(shape) > 1 else 1


def width(dtype: str) -> int:
    digits = "".join(letter for letter in dtype.split("_", maxsplit=1)[0] if letter.isdigit())
    return 1 if dtype == "bool" or not digits else int(digits) // 8


def held(layer: Any, made_bytes: int) -> int:
    """Beside its input and output, where its kind tells."""
    import keras

    if isinstance(layer, keras.layers.Dropout | keras.layers.SpatialDropout2D):
        return made_bytes // width(layer.compute_dtype) if layer.rate else 0
    if isinstance(layer, keras.layers.LayerNormalization):
        return made_bytes
    return made_bytes if getattr(getattr(layer, "activation", None), "__name__", "") in HOLDING else 0


def attention_bytes(layer: Any, rows: int, columns: int) -> int:
    """Of an attention layer with so many queries and values."""
    scores = int(layer.num_heads) * rows * columns
    projected = int(layer.num_heads) * (2 * rows * layer.key_dim + columns * (layer.key_dim + layer.value_dim))
    return int((2 * scores + projected) * width(layer.compute_dtype) + (scores if layer.dropout else 0))


def attention_flops(layer: Any, rows: int, columns: int) -> int:
    return int(2 * layer.num_heads * rows * columns * (layer.key_dim + layer.value_dim))


def matrices(layer: Any, positions: int) -> int:
    """Two operations for each weight of a matrix and position."""
    import keras

    if isinstance(layer, keras.layers.Embedding):
        return 0
    return sum(2 * math.prod(weight.shape) * positions for weight in layer.weights if len(weight.shape) > 1)
