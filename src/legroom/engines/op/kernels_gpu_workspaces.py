"""The workspace that cuDNN's convolutions take under TensorFlow, which depends on the algorithm that was the fastest on the card.

The sizes follow what cuDNN 9 did on an H200 (bench/data/h200_op_temporaries.jsonl): the tensor cores want channels last, filling
16 bytes, so whatever is not is copied, and a filter's gradient is summed up in parts. Without tensor cores they are XLA's
(`legroom.engines.xla.convolutions`). Fitted, not derived: how large those parts are, from how many terms on it pays to
turn a product's arrays, and the exceptions for few channels. Which of two algorithms is faster is at times a matter of luck.
"""

from math import prod

from legroom.engines.op.kernels_gpu_geometry import FILTER, FORWARD, Convolution
from legroom.engines.xla import convolutions as xla
from legroom.gpus import Gpu
from legroom.records.step import dtype_bytes
from legroom.units import GIB, KIB, MIB

XLA_DTYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "float64": "f64"}
TENSOR_CORES_FROM = {"float32": (8, 0), "bfloat16": (8, 0), "float16": (7, 0)}
HALVES = ("bfloat16", "float16")
SUMS_BYTES = 64 * KIB  # one 128 × 128 tile of float32 sums for each multiprocessor
MOST_SUMS = 14  # and not more than that many copies of the filter
MOST_PRODUCTS_BYTES = 40 * MIB  # a filter's gradient is made image by image up to that
FEW_CHANNELS = 4
NARROW_CHANNELS = 32  # with fewer, float32's filter gradients do not read channels last as they are
WRITTEN_CHANNELS = 64  # with fewer, some algorithms read channels last and write them first
SHORT_SUM = 288  # with more terms, it pays to turn arrays whose rows do not fill 16 bytes
GROUPED_LIMIT_BYTES = GIB  # a depthwise filter's gradient whose copies are larger is computed without them
GROUPED_SMALLEST = 8  # and so is one of images that have fewer rows
PLANE = 2


def has_tensor_cores(dtype: str, gpu: Gpu) -> bool:
    return gpu.compute_capability >= TENSOR_CORES_FROM.get(dtype, (99, 0))


def workspace(one: Convolution, gpu: Gpu, channels_last: bool) -> int:
    """What cuDNN's algorithm of choice will want of this card."""
    if not has_tensor_cores(one.dtype, gpu):
        return xla.workspace_bytes(for_xla(one), gpu)
    if one.grouped:
        return grouped_bytes(one)
    return last_bytes(one, gpu) if channels_last else first_bytes(one, gpu)


def for_xla(one: Convolution) -> xla.Convolution:
    dtype = XLA_DTYPES.get(one.dtype, "f32")
    return xla.Convolution(
        kind=one.role,
        x=xla.Array(dtype, (one.batch, one.channels, *one.sizes)),
        y=xla.Array(dtype, (one.batch, one.y_channels, *one.y_sizes)),
        filter=xla.Array(dtype, (*one.kernel, one.filter_channels, one.y_channels)),
        x_channels=one.channels,
        y_channels=one.y_channels,
        channels_last=False,
        kernel=one.kernel,
        dilated_filter=False,
        grouped=one.grouped,
    )


def grouped_bytes(one: Convolution) -> int:
    """A depthwise filter's gradient has both images in float32, twice."""
    copies = 8 // dtype_bytes(one.dtype, 1) * (one.x_bytes() + one.y_bytes)
    if one.role != FILTER or min(one.y_sizes) < GROUPED_SMALLEST or copies > GROUPED_LIMIT_BYTES:
        return 0
    return copies + 16 * one.filter_bytes


def aligned(one: Convolution) -> tuple[int, int, int]:
    """Image, result and filter with their channels filled up to 16 bytes."""
    step = 16 // dtype_bytes(one.dtype, 1)
    c, k = (-(-channels // step) * step for channels in (one.channels, one.y_channels))
    return (
        one.x_bytes() // one.channels * c,
        one.y_bytes // one.y_channels * k,
        dtype_bytes(one.dtype, prod(one.kernel) * c * k),
    )


def sums_bytes(one: Convolution, gpu: Gpu) -> int:
    """The parts of a filter's gradient, in float32."""
    return min(gpu.sm_count * SUMS_BYTES, MOST_SUMS * 4 * (one.filter_bytes // dtype_bytes(one.dtype, 1)))


def first_bytes(one: Convolution, gpu: Gpu) -> int:
    """Channels first: all three arrays are turned in the workspace, except where the convolution is a matrix product."""
    x, y, filter_ = turned(one)
    few = min(one.channels, one.y_channels)
    if few == 1 or (few < FEW_CHANNELS and max(one.kernel) <= FEW_CHANNELS - (one.role == FILTER)):
        return one.x_bytes() + one.y_bytes if is_volume(one) and one.role == FILTER else 0
    if one.role == FILTER:
        per_image = one.batch * one.filter_bytes  # a product for each image, summed up at the end
        pays = is_unaligned(one) and prod(one.sizes) > SHORT_SUM
        in_place = one.is_product and per_image <= MOST_PRODUCTS_BYTES and not pays
        return per_image if in_place else x + y + filter_ + sums_bytes(one, gpu)
    terms = prod(one.kernel) * (one.channels if one.role == FORWARD else one.y_channels)
    if one.is_product:
        return x + y if is_unaligned(one) and terms > SHORT_SUM else 0
    return forward_bytes(one, terms) if one.role == FORWARD else x + y + filter_


def forward_bytes(one: Convolution, terms: int) -> int:
    """Some algorithms read what was turned, and write their result channels first; and short strided products read in place."""
    x, y, filter_ = turned(one)
    apart = one.kernel == one.strides or max(one.kernel) == 1  # patches that do not overlap
    if apart and terms <= SHORT_SUM and not is_unaligned(one):
        return x + filter_ if max(one.kernel) > 1 or one.y_channels > one.channels else 0
    wide = one.channels <= WRITTEN_CHANNELS <= one.y_channels and one.channels % NARROW_CHANNELS == 0
    if (one.fused and wide) or (is_volume(one) and one.channels <= WRITTEN_CHANNELS):
        return x + filter_
    return x + y + filter_


def turned(one: Convolution) -> tuple[int, int, int]:
    """As `aligned`, without a 1 × 1 filter, which is the same in both layouts."""
    x, y, filter_ = aligned(one)
    return x, y, filter_ if max(one.kernel) > 1 else 0


def is_unaligned(one: Convolution) -> bool:
    """The rows of a product with channels first, an image each, do not fill 16 bytes."""
    return prod(one.y_sizes) * dtype_bytes(one.dtype, 1) % 16 != 0


def is_volume(one: Convolution) -> bool:
    return len(one.kernel) > PLANE


def last_bytes(one: Convolution, gpu: Gpu) -> int:
    """Channels last: a copy of each array whose channels do not fill 16 bytes."""
    x, y, filter_ = aligned(one)
    copied = [size for size, plain in ((x, one.x_bytes()), (y, one.y_bytes)) if size != plain]
    narrow = one.channels < NARROW_CHANNELS or one.y_channels <= NARROW_CHANNELS
    few = min(one.channels, one.y_channels)
    if one.role != FILTER:
        reads_few = one.dtype in HALVES and one.role == FORWARD and few < FEW_CHANNELS < max(one.kernel)
        return sum(copied) + filter_ if copied and few > 1 and not reads_few else 0
    if one.dtype == "float32" and few == 1:
        return 0
    if one.dtype == "float32" and (copied or narrow):
        copied = [x, y]
    return sum(copied) + sums_bytes(one, gpu)
