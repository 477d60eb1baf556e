"""How far a simulated peak can be from the real one (docs/accuracy.md)."""

from legroom.engines.op.simulate import Outcome
from legroom.memory.estimate import Bounds

SHARE = (
    0.12  # how kernels fall out in time differs from run to run, and which algorithm cuDNN takes is the card's to say
)
# On a CPU the largest of many simulated steps is what counts, and of 50 steps measured (three processes, five steps each) none
# was more than 10.1% above it. The data's batches lie in the same allocator.
CPU_HIGH_SHARE = 0.13
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
    low, high = min(outcome.peaks), max(outcome.peaks)
    most = int(high * (1 + share)) + wide + inside + undecided_bytes
    return Bounds(low_bytes=max(0, int(low * (1 - SHARE)) - wide), high_bytes=most)
