"""What TensorFlow's GPU kernels take from the GPU's allocator beside their outputs, and outputs whose size is not their shape's.

Read from the kernels' sources and from real steps on an H200, allocation by allocation (bench/op_temporaries.py,
bench/data/h200_op_temporaries.jsonl). Operations that are not named here take nothing, or a few bytes.
"""

from collections.abc import Callable
from math import prod

from legroom.engines.op.kernels_cpu import kept_dimensions
from legroom.engines.op.kernels_cpu_einsum import einsum
from legroom.engines.op.kernels_gpu_convolutions import convolution, depthwise
from legroom.engines.op.kernels_gpu_rnn import recurrent, reserve_bytes
from legroom.engines.op.ops import Op
from legroom.gpus import Gpu
from legroom.records.step import dtype_bytes

HALVES = ("bfloat16", "float16")
MOST_COLUMNS = 4096
PARTIAL_ROWS = 32
MOST_SIMPLE_RUNS = 3


def temporaries(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """Bytes of the buffers that live beside the outputs at the operation's fullest moment, not rounded."""
    rule = RULES.get(op.kind)
    return tuple(size for size in rule(op, gpu) if size) if rule else ()


def output_sizes(op: Op, gpu: Gpu) -> dict[int, int]:
    """Bytes of the outputs that shape inference does not know, by position."""
    if op.kind == "CudnnRNNV3":
        return {3: reserve_bytes(op), 4: 0}  # host_reserved lies in the host's memory, and is empty
    if op.kind in {"CudnnRNN", "CudnnRNNV2"}:
        return {3: reserve_bytes(op)}
    if op.kind == "FusedBatchNormV3":
        return {5: 0}  # cuDNN keeps something there only for its persistent kernels, which TensorFlow leaves off
    return {}


def _softmax(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """The largest logits and the sums: a number a row, but each in a buffer of the whole result's shape."""
    result = op.outputs[0]
    return result.size_bytes, 4 * prod(result.shape) if result.dtype in HALVES else result.size_bytes


def _cross_entropy(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """A number for each example."""
    return (op.outputs[0].size_bytes,)


def _reduction(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """Kept and reduced dimensions by turns are transposed first; sums over rows are made in 32 parts."""
    image, result = op.inputs[0], op.outputs[0]
    runs: list[bool] = []
    for size, keep in zip(image.shape, kept_dimensions(op), strict=True):
        if size != 1 and (not runs or runs[-1] != keep):
            runs.append(keep)
    if len(runs) > MOST_SIMPLE_RUNS:
        return (image.size_bytes,)
    columns = prod(result.shape)
    if runs == [False, True] and columns <= MOST_COLUMNS:
        parts = min(PARTIAL_ROWS, prod(image.shape) // max(columns, 1) // PARTIAL_ROWS)
        return (max(parts, 0) * columns * (4 if image.dtype in HALVES else dtype_bytes(image.dtype, 1)),)
    return ()


def _average_pool_gradient(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """cuDNN wants the pooled image and its source, which the gradient of an average does not need: buffers stand in for them."""
    return (op.outputs[0].size_bytes, op.inputs[1].size_bytes) if _is_channels_first(op) else ()


def _volume_pool(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """cuDNN pools volumes with channels first: all that the kernel reads and writes is turned."""
    if _is_channels_first(op):
        return ()
    return op.inputs[0].size_bytes, op.outputs[0].size_bytes


def _volume_pool_gradient(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """The volume and its gradient, the pooled volume and its gradient; an average's are stood in for, channels first or last."""
    volume, pooled = op.outputs[0].size_bytes, op.inputs[-1].size_bytes
    if _is_channels_first(op):
        return () if op.kind == "MaxPool3DGrad" else (volume, pooled)
    return volume, volume, pooled, pooled


def _is_channels_first(op: Op) -> bool:
    return str(op.attributes.get("data_format", "")).startswith("NC")


def _batch_norm(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """cuDNN trains channels first: image and result are turned."""
    return (op.inputs[0].size_bytes,) * 2 if _turns_batch_norm(op) else ()


def _batch_norm_gradient(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """The gradient of the result, the image and its gradient are turned."""
    return (op.inputs[1].size_bytes,) * 3 if _turns_batch_norm(op) else ()


def _turns_batch_norm(op: Op) -> bool:
    return bool(op.attributes.get("is_training", True)) and not _is_channels_first(op)


def _einsum(op: Op, gpu: Gpu) -> tuple[int, ...]:
    return einsum(op)


REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "EuclideanNorm")
CONVOLUTIONS = (
    *("Conv2D", "_FusedConv2D", "Conv2DBackpropInput", "Conv2DBackpropInputV2"),
    *("Conv2DBackpropFilter", "Conv2DBackpropFilterV2", "Conv3D", "_FusedConv3D"),
    *("Conv3DBackpropInput", "Conv3DBackpropInputV2", "Conv3DBackpropFilter", "Conv3DBackpropFilterV2"),
)
DEPTHWISE = ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter")

RULES: dict[str, Callable[[Op, Gpu], tuple[int, ...]]] = {
    **dict.fromkeys(CONVOLUTIONS, convolution),
    **dict.fromkeys(DEPTHWISE, depthwise),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"), _cross_entropy),
    **dict.fromkeys(("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"), recurrent),
    **dict.fromkeys(("CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3"), recurrent),
    **dict.fromkeys(("MaxPool3D", "AvgPool3D"), _volume_pool),
    **dict.fromkeys(("MaxPool3DGrad", "AvgPool3DGrad"), _volume_pool_gradient),
    "AvgPoolGrad": _average_pool_gradient,
    "FusedBatchNormV3": _batch_norm,
    "FusedBatchNormGradV3": _batch_norm_gradient,
    "Einsum": _einsum,
}
