"""How much work an op is: its multiplications and additions, and the bytes that it moves."""

from collections.abc import Callable
from math import prod

from legroom.engines.op.ops import Op

PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "_FusedMatMul")
FORWARD = ("Conv2D", "_FusedConv2D", "Conv3D", "DepthwiseConv2dNative")
IMAGE_GRADIENTS = ("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput")
FILTER_GRADIENTS = ("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter")


def moved_bytes(op: Op) -> int:
    """All that goes in and comes out."""
    return sum(array.size_bytes for array in (*op.inputs, *op.outputs))


def flops(op: Op) -> int:
    """Multiplications and additions of the ops that take nearly all the time; the others are counted by their bytes."""
    count = COUNTED.get(op.kind)
    return count(op) if count else 0


def _product(op: Op) -> int:
    """Every element of both operands meets its partners: √(left · right · result) for matrices, and for batches of them."""
    if len(op.inputs) < 2 or not op.outputs:
        return 0
    left, right, result = (prod(array.shape) for array in (op.inputs[0], op.inputs[1], op.outputs[0]))
    batch = prod(op.outputs[0].shape[:-2]) if op.kind.startswith("BatchMatMul") else 1
    return 2 * int((left * right * result / max(1, batch)) ** 0.5)


def _einsum(op: Op) -> int:
    """Every combination of labels, once; those that dots stand for are counted from the right."""
    if len(op.inputs) < 2:
        return 0
    sizes: dict[str | int, int] = {}
    operands = str(op.attributes["equation"]).replace(" ", "").partition("->")[0].split(",")
    for labels, array in zip(operands, op.inputs, strict=True):
        first, _, last = labels.partition("...")
        inner = array.shape[len(first) : len(array.shape) - len(last)]
        named: list[str | int] = [*first, *range(-len(inner), 0), *last]
        for label, size in zip(named, array.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    return 2 * prod(sizes.values())


def _convolution(image: int, weights: int, result: int) -> Callable[[Op], int]:
    """A convolution by the positions of its arrays among inputs and outputs (-1: the first output)."""

    def count(op: Op) -> int:
        arrays = [op.outputs[0] if position < 0 else op.inputs[position] for position in (image, weights, result)]
        kernel, pixels = arrays[1], arrays[2]
        # Each result is a window over the channels that it sees: one of them where they are convolved apart.
        each = 2 if op.kind.startswith("Depthwise") else 1
        return 2 * prod(kernel.shape) * prod(pixels.shape) // max(1, prod(kernel.shape[-each:]))

    return count


COUNTED: dict[str, Callable[[Op], int]] = {
    **dict.fromkeys(PRODUCTS, _product),
    "Einsum": _einsum,
    **dict.fromkeys(FORWARD, _convolution(0, 1, -1)),
    **dict.fromkeys(IMAGE_GRADIENTS, _convolution(-1, 1, 2)),
    **dict.fromkeys(FILTER_GRADIENTS, _convolution(0, -1, 2)),
}
