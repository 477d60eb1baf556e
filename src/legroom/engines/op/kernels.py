"""A device's kernels as the executor meets them: what an op hands on, takes, changes, and how long it keeps a thread busy."""

from legroom.engines.op import kernels_cpu, kernels_cpu_times, kernels_gpu, sharing
from legroom.engines.op.clock import Clock, SharedClock
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
        *("StopGradient", "PreventGradient", "VariableShape", "_Retval", LOOP_GATE, LOOP_END),
    )
)
"""Kernels that say of themselves that they are cheap; all others count as expensive on a CPU until they have run often."""

LAUNCH_SECONDS = 12e-6
GLANCE_SECONDS = 2e-6  # a node that only hands on


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

    def outputs_last(self, op: Op) -> bool:
        return op.kind in kernels_cpu.BEFORE_OUTPUTS

    def is_cheap(self, op: Op) -> bool:
        return op.kind in CHEAP

    def seconds(self, op: Op) -> float:
        return GLANCE_SECONDS if op.kind in CHEAP else kernels_cpu_times.seconds_of(op)

    def clock(self) -> Clock:
        return SharedClock(self.threads)


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

    def outputs_last(self, op: Op) -> bool:
        return op.kind == "Einsum"  # the same source as the CPU's; of the other kernels the order was not measured

    def is_cheap(self, op: Op) -> bool:
        return True

    def seconds(self, op: Op) -> float:
        return GLANCE_SECONDS if op.kind in CHEAP else LAUNCH_SECONDS

    def clock(self) -> Clock:
        return Clock()


def within_compiled(op: Op) -> tuple[int, ...]:
    """What XLA is taken to hold inside a function that it compiles: a copy of all that goes in and comes out."""
    if op.kind != COMPILED_CALL:
        return ()
    return tuple(array.size_bytes for array in (*op.inputs, *op.outputs) if array.size_bytes)
