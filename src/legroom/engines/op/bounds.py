"""How far a simulated peak can be from the real one (docs/accuracy.md)."""

from legroom.engines.op.simulate import Outcome
from legroom.memory.estimate import Bounds

SHARE = (
    0.12  # how kernels fall out in time differs from run to run, and which algorithm cuDNN takes is the card's to say
)
CPU_HIGH_SHARE = 0.16  # on a CPU the data's batches lie in the same allocator
CPU_LATER_SHARE = 0.13  # past the largest of many steps: of 60 steps with and without actions one was 10.1% above it, the others 7% at most
UNKNOWN_SHARE = 0.5  # of what ops make that the simulation does not know
# How many times what goes in and out a function compiled by XLA was seen to hold: grouped convolutions, on the CPU and an H200.
CPU_COMPILED_TIMES, GPU_COMPILED_TIMES = 48, 8


def bounds_of(
    outcome: Outcome, *, on_cpu: bool, unknown_bytes: int = 0, compiled_bytes: int = 0, undecided_bytes: int = 0
) -> Bounds:
    """The range in which the peak lies: that of the runs, widened."""
    share = CPU_HIGH_SHARE if on_cpu else SHARE
    wide = min(int(UNKNOWN_SHARE * unknown_bytes), max(outcome.peaks) // 2)
    inside = compiled_bytes * (CPU_COMPILED_TIMES if on_cpu else GPU_COMPILED_TIMES)
    low = min((*outcome.peaks, *outcome.later_peaks))
    high = max(max(outcome.peaks) * (1 + share), max(outcome.later_peaks, default=0) * (1 + CPU_LATER_SHARE))
    most = int(high) + wide + inside + undecided_bytes
    return Bounds(low_bytes=max(0, int(low * (1 - SHARE)) - wide), high_bytes=most)
