"""What TensorFlow's convolutions take from a GPU's allocator beside their outputs: TensorFlow's own buffers and cuDNN's workspace.

The first follow from TensorFlow's sources (conv_ops_impl.h, conv_grad_input_ops.cc, conv_grad_filter_ops_launcher.cc,
conv_grad_ops_3d.cc, depthwise_conv_op.cc): the filter in cuDNN's layout, an image padded where the padding is not the same on
both sides, a second image for the gradient of one, and all of them turned to channels first where the card has no tensor cores
for the dtype. The second is `kernels_gpu_workspaces`.
"""

from dataclasses import replace

from legroom.engines.op.kernels_gpu_geometry import FORWARD, IMAGE, Convolution, arrays, read
from legroom.engines.op.kernels_gpu_workspaces import HALVES, TENSOR_CORES_FROM, has_tensor_cores, workspace
from legroom.engines.op.ops import Op
from legroom.gpus import Gpu

CUDNN_DEPTHWISE_SIZES = (1, 3, 5, 7)
CUDNN_DEPTHWISE_STRIDE = 2


def convolution(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """Conv2D, Conv3D, their fused form, and both their gradients."""
    x, filter_, y = arrays(op)
    if not (x.size_bytes and filter_.size_bytes and y.size_bytes):
        return ()
    return launch(read(op, x, filter_.shape, y), gpu)


def depthwise(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """In 16 bits cuDNN's grouped convolution; in float32 TensorFlow's own kernels, which take nothing."""
    x, filter_, y = arrays(op)
    if not (x.size_bytes and filter_.size_bytes and y.size_bytes):
        return ()
    *kernel, depth, multiplier = filter_.shape
    one = read(op, x, (*kernel, 1, depth * multiplier), y)
    supported = (
        kernel[0] == kernel[1]
        and kernel[0] in CUDNN_DEPTHWISE_SIZES
        and multiplier == 1
        and max(one.strides) <= CUDNN_DEPTHWISE_STRIDE
    )
    if depth > 1 and (x.dtype not in HALVES or not supported):
        return ()
    return launch(one, gpu)


def launch(one: Convolution, gpu: Gpu) -> tuple[int, ...]:
    """TensorFlow's buffers, and cuDNN's workspace."""
    casts: tuple[int, ...] = ()
    if one.dtype == "bfloat16" and gpu.compute_capability < TENSOR_CORES_FROM["bfloat16"]:
        casts = (2 * one.x_bytes(one.plain_sizes), 2 * one.filter_bytes, 2 * one.y_bytes)
        one = replace(one, dtype="float32")
    if is_matrix_product(one):
        return casts
    turned = one.channels_last and not computes_channels_last(one, gpu)
    return *casts, *buffers(one, turned), workspace(one, gpu, one.channels_last and not turned)


def is_matrix_product(one: Convolution) -> bool:
    """Channels last, cuBLAS multiplies 1 × 1 filters, and filters as large as the image."""
    if not one.channels_last or one.grouped or one.fused or not one.implicit:
        return False
    if one.is_product and (max(one.dilations) == 1 or one.role != FORWARD):
        return True
    return one.kernel == one.plain_sizes and not one.padded and max(one.y_sizes) == 1


def buffers(one: Convolution, turned: bool) -> list[int]:
    """What TensorFlow itself takes. `turned`: the arrays have channels last and cuDNN is to compute with channels first."""
    found = [one.filter_bytes]
    if one.role == IMAGE:
        found.append(one.x_bytes())
        found += [one.x_bytes(one.plain_sizes)] * one.padded
    else:
        found += [one.x_bytes()] * one.padded
        found += [one.x_bytes()] * (turned and one.channels > 1)
    return found + [one.y_bytes] * (turned and (one.y_channels > 1 or one.role == FORWARD))


def computes_channels_last(one: Convolution, gpu: Gpu) -> bool:
    """Where tensor cores do the work; the fused kernel turns float32 even then."""
    return has_tensor_cores(one.dtype, gpu) and not (one.fused and one.dtype == "float32")
