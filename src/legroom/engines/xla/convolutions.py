"""The scratch memory of cuDNN's convolutions, which XLA asks a real card for and gets none of without one.

On a card XLA tries cuDNN's algorithms for each convolution and reserves what the fastest one wants. Without a card it
reserves nothing, and its scheduler, which orders the step by memory, then chooses another order. So a program with
convolutions is compiled twice: the first time to learn how XLA names them (it logs each one that it finds no result for),
the second with a file of results that gives each the workspace below, as if it had been tried (docs/accuracy.md).

The sizes follow what cuDNN 9 did on an H200 (bench/data/h200_workspaces.jsonl). With tensor cores, and channels last (Hopper;
half precision everywhere): channels that do not fill 16 bytes are padded in a copy, a filter's gradient is summed up in a
tile for each multiprocessor, some float32 filter gradients copy both operands. With channels first, as XLA lays float32
out for Ampere and Ada: all operands are turned in a copy. Without tensor cores (float32 before Ampere): Winograd's
transform for filter gradients. Fitted, not derived: the size of the tile, and the exceptions for very few channels.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from legroom.gpus import Gpu
from legroom.units import KIB

LOGGED = re.compile(r"Autotune cache miss: key = <key model='([^']*)', hlo='(.*?)', version=(\d+)>", re.DOTALL)
CALL = re.compile(
    r"\((?P<out>\w+\[[\d,]*\]\{[\d,]*\}), u8\[\d+\]\{0\}\) custom-call\((?P<operands>.*?)\), (?P<attributes>.*?)"
    r'custom_call_target="__cudnn\$conv(?P<kind>\w+)"'
)
ARRAY = re.compile(r"(\w+)\[([\d,]*)\]\{[\d,]*\}")
LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
WINDOW = re.compile(r"window=\{([^}]*)\}")
GROUPS = re.compile(r"feature_group_count=(\d+)")

ELEMENT_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8, "s8": 1}
TENSOR_CORES_FROM = {"f32": (8, 0), "bf16": (8, 0), "f16": (7, 0)}
ALIGNMENT_BYTES = 16
TILE_BYTES = 128 * KIB  # one 128 × 256 tile of float32 sums for each multiprocessor
FEW_CHANNELS = 4
SMALLEST_BYTES = 131  # what cuDNN's algorithms ask for that need nothing


@dataclass(frozen=True, slots=True)
class Array:
    """One operand: its element type and dimensions."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return ELEMENT_BYTES.get(self.dtype, 4) * prod(self.dims)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution as XLA calls it: image `x`, result `y` and filter, whichever of them it computes."""

    kind: str
    x: Array
    y: Array
    filter: Array
    x_channels: int
    y_channels: int
    channels_last: bool
    kernel: tuple[int, ...]
    dilated_filter: bool
    grouped: bool
    strided: bool = False
    batch: int = 1
    spatial: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What XLA looked up and did not find, in its own words."""

    device: str
    hlo: str
    version: int


def read_questions(log: str) -> list[Question]:
    """All convolutions that XLA logged, each once."""
    found = (Question(match[1], match[2], int(match[3])) for match in LOGGED.finditer(log))
    return list(dict.fromkeys(question for question in found if "__cudnn$conv" in question.hlo))


def read_convolution(hlo: str) -> Convolution | None:
    """A call of cuDNN's, taken apart; None if it is not one that is known."""
    call = CALL.match(hlo)
    labels = LABELS.search(call["attributes"]) if call else None
    if call is None or labels is None:
        return None
    arrays = [read_array(match) for match in ARRAY.finditer(call["operands"])]
    out = next(read_array(match) for match in ARRAY.finditer(call["out"]))
    if len(arrays) < 2:
        return None
    x, y, filter_ = {
        "BackwardFilter": (arrays[0], arrays[1], out),
        "BackwardInput": (out, arrays[0], arrays[1]),
    }.get(call["kind"], (arrays[0], out, arrays[1]))
    window = WINDOW.search(call["attributes"])
    sizes = re.search(r"size=([\dx]+)", window[1]) if window else None
    groups = GROUPS.search(call["attributes"])
    return Convolution(
        kind=call["kind"],
        x=x,
        y=y,
        filter=filter_,
        x_channels=x.dims[labels[1].index("f")],
        y_channels=y.dims[labels[3].index("f")],
        channels_last=labels[1].endswith("f"),
        kernel=tuple(int(size) for size in sizes[1].split("x")) if sizes else (1,),
        dilated_filter=window is not None and "rhs_dilate" in window[1],
        grouped=groups is not None and int(groups[1]) > 1,
        strided=window is not None and "stride" in window[1],
        batch=x.dims[labels[1].index("b")],
        spatial=tuple(size for size, label in zip(x.dims, labels[1], strict=False) if label.isdigit()),
    )


def read_array(match: re.Match[str]) -> Array:
    return Array(match[1], tuple(int(size) for size in match[2].split(",") if size))


def workspace_bytes(convolution: Convolution, gpu: Gpu) -> int:
    """What cuDNN's algorithm of choice will want of this card."""
    has_tensor_cores = gpu.compute_capability >= TENSOR_CORES_FROM.get(convolution.x.dtype, (99, 0))
    tile = gpu.sm_count * TILE_BYTES if convolution.kind == "BackwardFilter" else SMALLEST_BYTES
    if not has_tensor_cores:
        return plain_bytes(convolution)
    if convolution.grouped:
        return tile
    if not convolution.channels_last:
        return turned_bytes(convolution, tile)
    if convolution.dilated_filter:  # a filter's gradient in a forward convolution's clothes
        is_float32 = convolution.x.dtype == "f32"
        return convolution.x.size_bytes + convolution.filter.size_bytes if is_float32 else SMALLEST_BYTES
    return tile if max(convolution.kernel) == 1 else misaligned_bytes(convolution, tile)


def plain_bytes(convolution: Convolution) -> int:
    """Without tensor cores a 3 × 3 filter's gradient goes through Winograd's transform: 36 values for every 16 (and 9)."""
    if convolution.kind != "BackwardFilter" or convolution.kernel != (3, 3) or convolution.grouped:
        return 0
    if min(convolution.x_channels, convolution.y_channels) < FEW_CHANNELS:
        return 0
    both = convolution.x.size_bytes + convolution.y.size_bytes
    return both * 36 // 16 + convolution.filter.size_bytes * 36 // 9


def turned_bytes(convolution: Convolution, tile: int) -> int:
    """Channels first: the tensor cores want them last, so cuDNN turns all three arrays in its workspace."""
    channels = min(convolution.x_channels, convolution.y_channels)
    if channels == 1 or (channels < FEW_CHANNELS and max(convolution.kernel) <= 4):
        return SMALLEST_BYTES
    both = convolution.x.size_bytes + convolution.y.size_bytes
    if convolution.kind == "BackwardFilter":
        return both + min(tile, 4 * convolution.filter.size_bytes)
    return both + (0 if convolution.dilated_filter else convolution.filter.size_bytes)


def misaligned_bytes(convolution: Convolution, tile: int) -> int:
    """With channels that do not fill 16 bytes a tensor is copied with padding; float32 filter gradients copy both."""
    step = ALIGNMENT_BYTES // ELEMENT_BYTES[convolution.x.dtype]
    pairs = ((convolution.x_channels, convolution.x), (convolution.y_channels, convolution.y))
    copied = [(channels, array.size_bytes) for channels, array in pairs if channels % step]
    if not copied:
        return tile
    is_float32 = convolution.x.dtype == "f32"
    if is_float32 and convolution.kind == "BackwardFilter":
        few = min(channels for channels, _ in copied) < FEW_CHANNELS
        both = convolution.x.size_bytes + convolution.y.size_bytes
        return SMALLEST_BYTES if few and (max(convolution.kernel) <= 3 or min(convolution.kernel) == 1) else both + tile
    return tile + sum(
        size if is_float32 and channels < step else size // channels * (-(-channels // step) * step)
        for channels, size in copied
    )


def tuned_bytes(questions: Iterable[Question]) -> int:
    """The largest array of a convolution that cuDNN has transforms for (Fourier's, Winograd's): the kernel larger than one, no strides or groups."""
    found = (read_convolution(question.hlo) for question in questions)
    sizes = [
        max(one.x.size_bytes, one.y.size_bytes)
        for one in found
        if one is not None and max(one.kernel) > 1 and not (one.strided or one.grouped)
    ]
    return max(sizes, default=0)


def write_results(questions: Iterable[Question], gpu: Gpu) -> str | None:
    """A file of results for XLA (`xla_gpu_load_autotune_results_from`), or None if there is nothing to say."""
    lines = []
    for question in questions:
        convolution = read_convolution(question.hlo)
        size = 0 if convolution is None else workspace_bytes(convolution, gpu)
        if size:
            result = f"algorithm {{ algo_id: 1 workspace_size {{ value: {size} }} }}"
            key = f'device: "{escape(question.device)}" hlo: "{escape(question.hlo)}" version: {question.version}'
            lines.append(f"results {{ {key} result {{ {result} }} }}")
    return "\n".join(["version: 3", *lines]) + "\n" if lines else None


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
