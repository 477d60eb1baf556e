"""What TensorFlow's CPU kernels take from the device's allocator beside their outputs, with oneDNN off.

Read from the kernels' sources and measured operation by operation under the real allocator (`bench/cpu_temporaries.py`). What Eigen
takes by itself, to pack the blocks of a matrix product or a convolution, does not pass through the allocator and is not counted.
Operations that are not named here take nothing, or a few bytes.
"""

from collections.abc import Callable
from itertools import pairwise
from math import prod

from legroom.engines.op.kernels_cpu_convolutions import depthwise, filter_gradient, grouped_convolution, input_gradient
from legroom.engines.op.kernels_cpu_einsum import einsum
from legroom.engines.op.ops import Op
from legroom.records.step import dtype_bytes

HALVES = ("float16", "bfloat16")


def temporaries(op: Op, threads: int, l3_cache_bytes: int | None = None) -> tuple[int, ...]:
    """Bytes of the buffers that live beside the outputs at the operation's fullest moment, not rounded.

    `threads` is TensorFlow's intra-op parallelism. `l3_cache_bytes` sizes the gradients of 3-D convolutions; this machine's
    cache stands in for it. `op.attributes["values"]` may hold the values of small inputs by position, such as `{1: (0, 2)}`
    for a reduction's axes: without them they are guessed from the shapes.
    """
    if op.kind in IMAGE_GRADIENTS:
        return input_gradient(op, threads, l3_cache_bytes)
    if op.kind in FILTER_GRADIENTS:
        return filter_gradient(op, l3_cache_bytes)
    rule = RULES.get(op.kind)
    return tuple(size for size in rule(op, threads) if size) if rule else ()


def _matrix_product(op: Op, threads: int) -> tuple[int, ...]:
    """Products of 16-bit numbers are computed in float32 copies of both operands and of the result."""
    left, right, result = op.inputs[0], op.inputs[1], op.outputs[0]
    if left.dtype not in HALVES or left.dtype != right.dtype or not (left.size_bytes and right.size_bytes):
        return ()
    return tuple(4 * prod(array.shape) for array in (left, right, result)) if result.size_bytes else ()


def _outer_sum(rows: int, columns: int, element: int, threads: int) -> int:
    """The partial sums, one row a thread, of a sum over rows; many columns are summed outside the allocator."""
    if rows <= 1 or columns == 0 or columns > threads * 32:
        return 0
    least_rows = -(-2000 // columns)
    return min(rows, -(-rows * columns // least_rows), threads) * columns * element


def _bias_gradient(op: Op, threads: int) -> tuple[int, ...]:
    gradient, bias = op.inputs[0], op.outputs[0]
    if op.attributes.get("data_format") == "NCHW" or not gradient.size_bytes:
        return ()
    element = 4 if gradient.dtype == "float16" else dtype_bytes(gradient.dtype, 1)
    depth = bias.shape[0]
    return (_outer_sum(prod(gradient.shape) // depth, depth, element, threads),)


def _batch_norm(op: Op, threads: int) -> tuple[int, ...]:
    """Channels first, the image and the result are transposed."""
    return (op.inputs[0].size_bytes,) * 2 if str(op.attributes.get("data_format", "")).startswith("NC") else ()


def _batch_norm_gradient(op: Op, threads: int) -> tuple[int, ...]:
    """Vectors of a number per channel, partial sums, and for 16-bit images one whole image in float32."""
    image, depth = op.inputs[1], prod(op.inputs[2].shape)
    if not image.size_bytes:
        return ()
    elements = prod(image.shape)
    sums = _outer_sum(elements // depth, depth, 4, threads)
    whole = 0 if image.dtype == op.inputs[2].dtype else 4 * elements
    if not op.attributes.get("is_training", True):
        return 4 * depth, 4 * depth, whole, sums
    first = str(op.attributes.get("data_format", "")).startswith("NC")
    return *[image.size_bytes] * (3 * first), 4 * depth, whole, sums


def _max_pool_gradient(op: Op, threads: int) -> tuple[int, ...]:
    """The pooled image once more (in place where nobody else reads it) and an int64 position for each of its numbers."""
    pooled = op.inputs[1]
    return pooled.size_bytes, 8 * prod(pooled.shape)


def _cross_entropy(op: Op, threads: int) -> tuple[int, ...]:
    return (op.outputs[0].size_bytes,)  # one number per example


def _reduction(op: Op, threads: int) -> tuple[int, ...]:
    """Dimensions that are kept and reduced by turns, four or more runs of them, are transposed first."""
    kept = kept_dimensions(op)
    runs: list[bool] = []
    for size, keep in zip(op.inputs[0].shape, kept, strict=True):
        if size != 1 and (not runs or runs[-1] != keep):
            runs.append(keep)
    return (op.inputs[0].size_bytes,) if len(runs) > 3 else ()


def kept_dimensions(op: Op) -> list[bool]:
    """Which dimensions a reduction keeps: from the axes where they are known, else the simplest that the shapes allow."""
    shape, output = op.inputs[0].shape, op.outputs[0].shape
    axes = op.attributes.get("values", {}).get(1)
    if axes is not None:
        reduced = {axis % len(shape) for axis in ((axes,) if isinstance(axes, int) else axes)}
        return [i not in reduced for i in range(len(shape))]
    if op.attributes.get("keep_dims") and len(output) == len(shape):
        return [size == left for size, left in zip(shape, output, strict=True)]
    ways: dict[int, list[bool]] = {0: []}  # by how much of the output is matched; fewest turns win
    for size in shape:
        longer: dict[int, list[bool]] = {}
        for matched, kept in ways.items():
            for keep in (True, False):
                end = matched + keep
                if keep and (matched == len(output) or output[matched] != size):
                    continue
                if end not in longer or _turns([*kept, keep]) < _turns(longer[end]):
                    longer[end] = [*kept, keep]
        ways = longer
    return ways.get(len(output), [False] * len(shape))


def _turns(kept: list[bool]) -> int:
    return sum(now != before for before, now in pairwise(kept))


def _mirror_pad_gradient(op: Op, threads: int) -> tuple[int, ...]:
    return (op.inputs[0].size_bytes,)


def _rgb_to_hsv(op: Op, threads: int) -> tuple[int, ...]:
    return (op.inputs[0].size_bytes // 3,)


def _multinomial(op: Op, threads: int) -> tuple[int, ...]:
    rows, classes = op.inputs[0].shape
    return (8 * classes,) * min(rows, threads)


def _scale_and_translate(op: Op, threads: int) -> tuple[int, ...]:
    """Rows are resized first: an image in float32 with the new height and the old width."""
    image, resized = op.inputs[0], op.outputs[0]
    batch, _, width, depth = image.shape
    return (4 * batch * resized.shape[1] * width * depth,)


def _adjust_contrast(op: Op, threads: int) -> tuple[int, ...]:
    *batch, _, _, depth = op.inputs[0].shape
    return (4 * prod(batch) * depth,)


Rule = Callable[[Op, int], tuple[int, ...]]

BEFORE_OUTPUTS = frozenset(
    (
        *("MaxPoolGrad", "MaxPoolGradV2", "Einsum", "MirrorPadGrad"),
        *("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"),
    )
)
"""Kernels that take their temporaries first and their outputs then, so that these lie behind them. The others the other way round."""

IMAGE_GRADIENTS = frozenset(("Conv2DBackpropInput", "Conv3DBackpropInput", "Conv3DBackpropInputV2"))
FILTER_GRADIENTS = frozenset(("Conv2DBackpropFilter", "Conv3DBackpropFilter", "Conv3DBackpropFilterV2"))
RULES: dict[str, Rule] = {
    "Conv2D": lambda op, threads: grouped_convolution(op),
    "Einsum": lambda op, threads: einsum(op),
    "DepthwiseConv2dNative": depthwise,
    "DepthwiseConv2dNativeBackpropInput": depthwise,
    "DepthwiseConv2dNativeBackpropFilter": depthwise,
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matrix_product),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx"), _batch_norm),
    **dict.fromkeys(("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"), _batch_norm_gradient),
    **dict.fromkeys(("MaxPoolGrad", "MaxPoolGradV2"), _max_pool_gradient),
    **dict.fromkeys(("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"), _cross_entropy),
    **dict.fromkeys(("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "EuclideanNorm"), _reduction),
    "BiasAddGrad": _bias_gradient,
    "MirrorPadGrad": _mirror_pad_gradient,
    "RGBToHSV": _rgb_to_hsv,
    **dict.fromkeys(("Multinomial", "StatelessMultinomial"), _multinomial),
    **dict.fromkeys(("ScaleAndTranslate", "ScaleAndTranslateGrad"), _scale_and_translate),
    "HistogramFixedWidth": lambda op, threads: (4 * prod(op.inputs[0].shape),),
    "AdjustContrastv2": _adjust_contrast,
}
