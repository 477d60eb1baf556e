"""A device's kernels as the executor meets them: what an op hands on, takes, changes, and how long it keeps a thread busy."""

from collections.abc import Callable
from math import prod

from legroom.engines.op import kernels_cpu, kernels_gpu, sharing
from legroom.engines.op.graph import COMPILED_CALL, LOOP_END, LOOP_GATE
from legroom.engines.op.ops import Op
from legroom.gpus import Gpu

CHEAP = frozenset(
    (
        *(
            "Identity",
            "IdentityN",
            "NoOp",
            "Reshape",
            "Squeeze",
            "ExpandDims",
            "Shape",
            "ShapeN",
            "Rank",
            "Size",
            "Bitcast",
        ),
        *("StopGradient", "PreventGradient", "VariableShape", "ReadVariableOp", "_Retval", LOOP_GATE, LOOP_END),
    )
)
"""Kernels that say of themselves that they are cheap; all others count as expensive on a CPU until they have run often."""

PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "_FusedMatMul", "Einsum")
FORWARD = ("Conv2D", "_FusedConv2D", "Conv3D", "DepthwiseConv2dNative")
IMAGE_GRADIENTS = ("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput")
FILTER_GRADIENTS = ("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter")
START_SECONDS = 4e-6
LAUNCH_SECONDS = 12e-6
# Rates of CPU kernels relative to each other, as measured on two cores: only who finishes first matters.
FLOPS_PER_SECOND = {
    **dict.fromkeys(PRODUCTS, 1.5e11),
    **dict.fromkeys(FORWARD, 1.8e11),
    **dict.fromkeys(IMAGE_GRADIENTS, 1.1e11),
    **dict.fromkeys(FILTER_GRADIENTS, 7e10),
}
BYTES_PER_SECOND = {
    **dict.fromkeys(("Relu", "BiasAdd", "BiasAddGrad", "Cast", "MaxPool", "AvgPool"), 1.2e10),
    **dict.fromkeys(("Tile", "ConcatV2", "Split", "Pad", "Exp", "Erf", "Tanh", "Sigmoid", "Log", "Pow"), 3.5e9),
    **dict.fromkeys(("Transpose", "Softmax", "MaxPoolGrad", "StatelessRandomUniformV2"), 1.5e9),
}
USUAL_BYTES_PER_SECOND = 6e9


class CpuKernels:
    """TensorFlow's CPU kernels with oneDNN off, on that many threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def shares(self, op: Op, output: int) -> int | None:
        return sharing.shares(op, output)

    def may_reuse(self, op: Op, output: int) -> tuple[int, ...]:
        return sharing.may_reuse(op, output)

    def lends(self, op: Op) -> tuple[int, ...]:
        return sharing.lends(op)

    def output_bytes(self, op: Op, output: int) -> int:
        return op.outputs[output].size_bytes

    def temporaries(self, op: Op) -> tuple[int, ...]:
        return within_compiled(op) or kernels_cpu.temporaries(op, self.threads)

    def is_cheap(self, op: Op) -> bool:
        return op.kind in CHEAP

    def seconds(self, op: Op) -> float:
        if op.kind in CHEAP:
            return START_SECONDS / 2
        if op.kind in FLOPS_PER_SECOND:
            return START_SECONDS + flops(op) / FLOPS_PER_SECOND[op.kind]
        return START_SECONDS + moved_bytes(op) / BYTES_PER_SECOND.get(op.kind, USUAL_BYTES_PER_SECOND)


class GpuKernels:
    """TensorFlow's GPU kernels: the host only launches them, one after the other, and none counts as expensive."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def shares(self, op: Op, output: int) -> int | None:
        return sharing.shares(op, output, "gpu")

    def may_reuse(self, op: Op, output: int) -> tuple[int, ...]:
        return sharing.may_reuse(op, output, "gpu")

    def lends(self, op: Op) -> tuple[int, ...]:
        return ()

    def output_bytes(self, op: Op, output: int) -> int:
        if sharing.on_host(op, output) or (op.kind == "_Arg" and op.outputs[output].dtype == "int32"):
            return 0
        special = kernels_gpu.output_sizes(op, self.gpu)
        return special.get(output, op.outputs[output].size_bytes)

    def temporaries(self, op: Op) -> tuple[int, ...]:
        return within_compiled(op) or kernels_gpu.temporaries(op, self.gpu)

    def is_cheap(self, op: Op) -> bool:
        return True

    def seconds(self, op: Op) -> float:
        return START_SECONDS / 2 if op.kind in CHEAP else LAUNCH_SECONDS


def within_compiled(op: Op) -> tuple[int, ...]:
    """What XLA is taken to hold inside a function that it compiles: a copy of all that goes in and comes out."""
    if op.kind != COMPILED_CALL:
        return ()
    return tuple(array.size_bytes for array in (*op.inputs, *op.outputs) if array.size_bytes)


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


def _convolution(image: int, weights: int, result: int) -> Callable[[Op], int]:
    """A convolution by the positions of its arrays among inputs and outputs (-1: the first output)."""

    def count(op: Op) -> int:
        arrays = [op.outputs[0] if position < 0 else op.inputs[position] for position in (image, weights, result)]
        kernel, pixels = arrays[1], arrays[2]
        channels = kernel.shape[-1] if kernel.shape else 1
        return 2 * prod(kernel.shape) * prod(pixels.shape) // max(1, channels)

    return count


COUNTED: dict[str, Callable[[Op], int]] = {
    **dict.fromkeys(PRODUCTS, _product),
    **dict.fromkeys(FORWARD, _convolution(0, 1, -1)),
    **dict.fromkeys(IMAGE_GRADIENTS, _convolution(-1, 1, 2)),
    **dict.fromkeys(FILTER_GRADIENTS, _convolution(0, -1, 2)),
}
