"""A convolution of TensorFlow's taken apart: image, filter and result, whichever of them the operation computes."""

from dataclasses import dataclass
from math import prod

from legroom.engines.op.ops import Array, Op
from legroom.records.step import dtype_bytes

FORWARD, IMAGE, FILTER = "Forward", "BackwardInput", "BackwardFilter"


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution, whichever of its three arrays it computes: image `x`, result `y` and filter, spatial sizes apart."""

    role: str
    dtype: str
    batch: int
    sizes: tuple[int, ...]  # of the image, as it is handed to cuDNN: padded where the two sides differ
    plain_sizes: tuple[int, ...]
    y_sizes: tuple[int, ...]
    channels: int
    y_channels: int
    kernel: tuple[int, ...]
    filter_channels: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    channels_last: bool
    implicit: bool  # padded SAME or VALID
    fused: bool = False

    @property
    def padded(self) -> bool:
        return self.sizes != self.plain_sizes

    @property
    def grouped(self) -> bool:
        return self.filter_channels != self.channels

    @property
    def is_product(self) -> bool:
        """1 × 1, stride 1: one matrix product."""
        return max(self.kernel) == 1 and max(self.strides) == 1

    @property
    def filter_bytes(self) -> int:
        return dtype_bytes(self.dtype, prod(self.kernel) * self.filter_channels * self.y_channels)

    @property
    def y_bytes(self) -> int:
        return dtype_bytes(self.dtype, self.batch * prod(self.y_sizes) * self.y_channels)

    def x_bytes(self, sizes: tuple[int, ...] | None = None) -> int:
        return dtype_bytes(self.dtype, self.batch * prod(self.sizes if sizes is None else sizes) * self.channels)


def arrays(op: Op) -> tuple[Array, Array, Array]:
    """Image, filter and result, whichever of them the operation computes."""
    if "BackpropInput" in op.kind:
        return op.outputs[0], op.inputs[1], op.inputs[2]
    if "BackpropFilter" in op.kind:
        return op.inputs[0], op.outputs[0], op.inputs[2]
    return op.inputs[0], op.inputs[1], op.outputs[0]


def read(op: Op, x: Array, filter_shape: tuple[int, ...], y: Array) -> Convolution:
    first = str(op.attributes.get("data_format", "")).startswith("NC")
    rank = len(x.shape)
    channel = 1 if first else rank - 1
    places = [i for i in range(1, rank) if i != channel]

    def spatial(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(int(values[i]) for i in places)

    role = IMAGE if "BackpropInput" in op.kind else FILTER if "BackpropFilter" in op.kind else FORWARD
    kernel, strides = filter_shape[:-2], spatial(op.attributes.get("strides") or (1,) * rank)
    dilations = spatial(op.attributes.get("dilations") or (1,) * rank)
    padding = op.attributes.get("padding", "VALID")
    explicit = tuple(op.attributes.get("explicit_paddings") or ())
    pairs = [explicit[2 * i : 2 * i + 2] for i in places] if padding == "EXPLICIT" else []
    sizes = spatial(x.shape)
    more = [abs(pair[0] - pair[1]) for pair in pairs] or [0] * len(sizes)
    if padding == "SAME":
        windows = ((size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True))
        more = [
            max((-(-size // stride) - 1) * stride + window - size, 0) % 2
            for size, stride, window in zip(sizes, strides, windows, strict=True)
        ]
    return Convolution(
        role=role,
        dtype=x.dtype,
        batch=x.shape[0],
        sizes=tuple(size + extra for size, extra in zip(sizes, more, strict=True)),
        plain_sizes=sizes,
        y_sizes=spatial(y.shape),
        channels=x.shape[channel],
        y_channels=y.shape[channel],
        kernel=kernel,
        filter_channels=filter_shape[-2],
        strides=strides,
        dilations=dilations,
        channels_last=not first,
        implicit=padding != "EXPLICIT",
        fused=op.kind.startswith("_Fused"),
    )
