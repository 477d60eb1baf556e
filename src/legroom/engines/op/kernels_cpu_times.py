"""How long the CPU's kernels take, relative to each other: only who finishes first matters to the executor's order.

Fitted to 8,520 kernels of eight models, timed by TensorFlow's own log on two cores with oneDNN off, and to single kernels run by
themselves where those models had none. Gradients of convolutions
spend most of their time unfolding images into columns and back; 16-bit floats have no fast kernels at all.
"""

from math import prod
from typing import NamedTuple

from legroom.engines.op.op_counts import FILTER_GRADIENTS, FORWARD, IMAGE_GRADIENTS, PRODUCTS, flops, moved_bytes
from legroom.engines.op.ops import Array, Op
from legroom.records.step import dtype_bytes

START_SECONDS = 6e-6
SHORT_FLOAT_SLOWDOWN = 8.0
SHORT_FLOATS = ("float16", "bfloat16")


class Rate(NamedTuple):
    """Work per second, by kind; 0 where it does not count."""

    flops: float = 0.0
    moved_bytes: float = 0.0
    column_bytes: float = 0.0


USUAL = Rate(moved_bytes=2e10)
RATES = {
    **dict.fromkeys(PRODUCTS, Rate(2.5e11, 5e9)),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), Rate(3.5e10)),
    "Einsum": Rate(3e11, 4e9),
    **dict.fromkeys(FORWARD, Rate(1.8e11, 3e10, 3e10)),
    "Conv3D": Rate(7e10, 3e10, 3e10),
    **dict.fromkeys(IMAGE_GRADIENTS, Rate(1.3e11, 1e10, 3.9e9)),
    **dict.fromkeys(FILTER_GRADIENTS, Rate(7e10, 8e9, 3.1e9)),
    **dict.fromkeys(("Sum", "Mean", "SelectV2", "Tile", "Transpose", "ConcatV2", "Split", "Pad"), Rate(0, 1.2e10)),
    **dict.fromkeys(("BiasAddGrad", "AssignSubVariableOp", "AssignAddVariableOp"), Rate(0, 9e9)),
    **dict.fromkeys(("ResizeBilinearGrad", "ResizeNearestNeighborGrad"), Rate(0, 9e9)),
    **dict.fromkeys(
        ("Softmax", "Exp", "Erf", "Erfc", "Tanh", "Sigmoid", "Log", "LogSoftmax", "Elu", "Selu", "LRN"), Rate(0, 6e9)
    ),
    **dict.fromkeys(("FusedBatchNormGradV3", "SoftmaxCrossEntropyWithLogits"), Rate(0, 5e9)),
    **dict.fromkeys(("ResizeBilinear", "ResizeNearestNeighbor", "MirrorPad"), Rate(0, 4e9)),
    **dict.fromkeys(("FusedBatchNormV3", "UnsortedSegmentSum", "StridedSliceGrad", "AvgPool"), Rate(0, 2.7e9)),
    **dict.fromkeys(("MaxPoolGrad", "SparseSoftmaxCrossEntropyWithLogits", "Softplus"), Rate(0, 2e9)),
    **dict.fromkeys(("Pow", "Cumsum", "MaxPool3D", "AvgPool3D", "AvgPool3DGrad"), Rate(0, 1e9)),
    **dict.fromkeys(("StatelessRandomUniformV2", "RandomUniform", "TopKV2"), Rate(0, 7e8)),
    **dict.fromkeys(("StatelessRandomNormalV2", "RandomStandardNormal", "MaxPool3DGrad", "LRNGrad"), Rate(0, 3e8)),
}


def seconds_of(op: Op) -> float:
    """The time of a kernel that is not cheap."""
    rate = RATES.get(op.kind, USUAL)
    work = ((flops(op), rate.flops), (moved_bytes(op), rate.moved_bytes), (column_bytes(op), rate.column_bytes))
    taken = sum(amount / speed for amount, speed in work if speed)
    short = op.kind in RATES and any(array.dtype in SHORT_FLOATS for array in op.outputs)
    return START_SECONDS + taken * (SHORT_FLOAT_SLOWDOWN if short else 1.0)


def column_bytes(op: Op) -> int:
    """What a convolution unfolds its images into: a patch for every pixel of the result."""
    found = operands(op)
    if found is None:
        return 0
    kernel, result = found
    return prod(result.shape[:-1]) * prod(kernel.shape[:-1]) * dtype_bytes(result.dtype, 1)


def operands(op: Op) -> tuple[Array, Array] | None:
    """The filter and the result's side of a convolution; depthwise ones unfold nothing."""
    if op.kind.startswith("Depthwise") or not op.outputs:
        return None
    if op.kind in FORWARD and len(op.inputs) > 1:
        return op.inputs[1], op.outputs[0]
    if op.kind in IMAGE_GRADIENTS and len(op.inputs) > 2:
        return op.inputs[1], op.inputs[2]
    if op.kind in FILTER_GRADIENTS and len(op.inputs) > 2:
        return op.outputs[0], op.inputs[2]
    return None
