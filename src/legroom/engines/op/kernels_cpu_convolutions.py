"""What the CPU kernels of convolutions take beside their outputs, oneDNN off.

The gradients unfold images into columns (im2col) in one buffer: that buffer is often the largest allocation of a step. How many
images it holds follows from a cache size that is written into the kernels, 30 MiB for 2-D (conv_grad_input_ops.h,
conv_grad_filter_ops.cc), and from the machine's own third-level cache for 3-D (conv_grad_ops_3d.cc); not from the batch: a
gradient of one small image takes tens of MiB as well. The forward kernels pack their blocks outside the device's allocator.
"""

from math import prod

from legroom.engines.op.cpu_cache import machine_l3_cache_bytes
from legroom.engines.op.ops import Array, Op
from legroom.records.step import dtype_bytes

L2_CACHE_BYTES = 256 << 10  # these two are constants of the 2-D kernels, whatever the machine has
L3_CACHE_BYTES = 30 << 20
LARGEST_OVERHEAD = 25  # a 3-D gradient whose columns are over this many times its tensors runs without them
LEAST_SHARD_COST = 10_000  # work_sharder.cc gives a thread no less than this


def grouped_convolution(op: Op) -> tuple[int, ...]:
    """A grouped convolution moves the groups to the front of image, filter and result; a plain one takes nothing."""
    image, kernel = op.inputs[:2]
    if len(image.shape) != 4 or image.shape[3] == kernel.shape[2]:
        return ()
    return image.size_bytes, kernel.size_bytes, op.outputs[0].size_bytes


def input_gradient(op: Op, threads: int, l3_cache_bytes: int | None) -> tuple[int, ...]:
    image, kernel, gradient = op.outputs[0], op.inputs[1], op.inputs[2]
    return _columns(image, kernel, gradient, threads, l3_cache_bytes)


def filter_gradient(op: Op, l3_cache_bytes: int | None) -> tuple[int, ...]:
    image, kernel, gradient = op.inputs[0], op.outputs[0], op.inputs[2]
    return _columns(image, kernel, gradient, None, l3_cache_bytes)


def _columns(
    image: Array, kernel: Array, gradient: Array, threads: int | None, l3_cache_bytes: int | None
) -> tuple[int, ...]:
    """The one buffer of columns. `threads` is given for the gradient of the image, which may take one image at a time."""
    if not (image.size_bytes and kernel.size_bytes and gradient.size_bytes):
        return ()
    volume = len(image.shape) == 5
    element = dtype_bytes(gradient.dtype, 1)
    positions, patch, depth = prod(gradient.shape[1:-1]), prod(kernel.shape[:-1]), gradient.shape[-1]
    columns = positions * patch
    work = columns + positions * depth + patch * depth
    cache_bytes = (l3_cache_bytes or machine_l3_cache_bytes()) if volume else L3_CACHE_BYTES
    images = -(-(cache_bytes // element) // work)
    if threads is not None:
        whole = not volume and work // threads >= L2_CACHE_BYTES // element
        if whole or image.shape[0] == 1:
            images = 1
    elements = images * columns
    if volume and elements // (prod(image.shape) + prod(kernel.shape) + prod(gradient.shape)) > LARGEST_OVERHEAD:
        return ()
    return (elements * element,)


def depthwise(op: Op, threads: int) -> tuple[int, ...]:
    """Depthwise convolutions copy one patch a thread, padded to whole vectors; the filter's gradient is kept per image."""
    backward_image = op.kind.endswith("BackpropInput")
    backward_filter = op.kind.endswith("BackpropFilter")
    result = op.inputs[2] if backward_image or backward_filter else op.outputs[0]
    kernel = op.outputs[0] if backward_filter else op.inputs[1]
    if not (result.size_bytes and kernel.size_bytes):
        return ()
    element = dtype_bytes(result.dtype, 1)
    lanes = 4 if result.dtype == "float64" else 8
    batch, rows, depth = result.shape[0], result.shape[1], result.shape[3]
    padded = -(-depth // lanes) * lanes
    patch = kernel.shape[0] * kernel.shape[1] * padded * element
    shards = min(threads, max(1, prod(result.shape) // LEAST_SHARD_COST))
    if backward_filter:
        return batch * patch, *[patch] * min(shards, batch)
    own = (patch, padded * element) * min(shards, batch) if backward_image else (patch,) * min(shards, batch * rows)
    return own if padded == depth else (patch, *own)
