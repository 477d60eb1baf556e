"""How far a simulated peak can be from the real one (docs/accuracy-op.md)."""

from dataclasses import dataclass

from legroom.engines.op.graph import COMPILED_CALL, LOOP_END, LOOP_GATE, Graph
from legroom.engines.op.simulate import Outcome
from legroom.engines.op.trace import EagerTrace
from legroom.engines.op.unknown import compiled_bytes, unknown_bytes
from legroom.memory.estimate import Bounds

SHARE = 0.12  # what steps with loops or sizes that only running tells were seen to be off by, and cards that nobody has measured
STEADY_SHARE = 0.025  # of a graph that runs in one order but for details, on a card like the one that was measured
MEASURED = ((9, 0),)  # compute capabilities on which steps were run against a limit
CPU_HIGH_SHARE = 0.16  # on a CPU the data's batches lie in the same allocator
CPU_LATER_SHARE = 0.13  # past the largest of many steps: of 60 steps with and without actions one was 10.1% above it, the others 7% at most
UNKNOWN_SHARE = 0.5  # of what ops make that the simulation does not know
# How many times what goes in and out a function compiled by XLA was seen to hold: grouped convolutions, on the CPU and an H200.
CPU_COMPILED_TIMES, GPU_COMPILED_TIMES = 48, 8


@dataclass(frozen=True, slots=True)
class Doubt:
    """What of a step's peak is open: shares of it, and bytes that may come on top of that."""

    share: float
    later_share: float
    unknown_bytes: int = 0
    above_bytes: int = 0

    def less_bytes(self, room_bytes: int) -> int:
        """How much of a pool must be left over for a simulated step that fits to be sure to."""
        return int(self.share * room_bytes) + self.above_bytes


def doubt_of(work: Graph | EagerTrace, capability: tuple[int, int] | None, *, growth: bool = False) -> Doubt:
    """What is open of that step on a card of that compute capability, or on a CPU. Memory that grows was not run against a limit."""
    unknown, undecided = unknown_bytes(work), work.undecided_bytes if isinstance(work, Graph) else 0
    if capability is None:
        inside = CPU_COMPILED_TIMES * compiled_bytes(work)
        return Doubt(CPU_HIGH_SHARE, CPU_LATER_SHARE, unknown, inside + undecided)
    inside = GPU_COMPILED_TIMES * compiled_bytes(work)
    steady = not growth and capability in MEASURED and is_steady(work) and not unknown
    share = STEADY_SHARE if steady else SHARE
    return Doubt(share, share, unknown, inside + undecided)


def is_steady(work: Graph | EagerTrace) -> bool:
    """Whether it runs in one order but for details, with sizes that are all known: no loops, no recurrent kernels, no functions of XLA."""
    kinds = {node.op.kind for node in work.nodes} if isinstance(work, Graph) else {LOOP_GATE}
    return not any(kind in (LOOP_GATE, LOOP_END, COMPILED_CALL) or kind.startswith("CudnnRNN") for kind in kinds)


def bounds_of(outcome: Outcome, doubt: Doubt) -> Bounds:
    """The range in which the peak lies: that of the runs, widened."""
    wide = min(int(UNKNOWN_SHARE * doubt.unknown_bytes), max(outcome.peaks) // 2)
    low = min((*outcome.peaks, *outcome.later_peaks))
    high = max(max(outcome.peaks) * (1 + doubt.share), max(outcome.later_peaks, default=0) * (1 + doubt.later_share))
    most = int(high) + wide + doubt.above_bytes
    return Bounds(low_bytes=max(0, int(low * (1 - SHARE)) - wide), high_bytes=most)
