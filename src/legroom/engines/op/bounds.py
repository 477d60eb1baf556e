"""How far a simulated peak can be from the real one (docs/accuracy-op.md)."""

from dataclasses import dataclass

from legroom.engines.op.graph import Graph
from legroom.engines.op.simulate import Outcome
from legroom.engines.op.trace import EagerTrace
from legroom.engines.op.unknown import compiled_bytes, convolved_bytes, has_recurrent_kernels, unknown_bytes
from legroom.gpus import Gpu
from legroom.memory.estimate import Bounds
from legroom.records.simulation import Failure

SHARE = (
    0.12  # how kernels fall out in time differs from run to run, and which algorithm cuDNN takes is the card's to say
)
# Of a graph's step in one pool, where no kernel of cuDNN's is in doubt: on the kind of card that was measured (docs/accuracy-plan.md), and on others.
MEASURED_SHARE, POOL_SHARE = 0.02, 0.05
MEASURED_CAPABILITY = 9, 0
PAGES_SHARE = 0.05  # of a step on CUDA's own pool: with all of the card but 8 GiB taken, two trained with 95.5 and 96.7% in use; of 2 GiB one ran out with 97%
GONE_SHARE = 0.02  # of a card's pool: real ones were full a little earlier than simulated ones
TORN_SHARE = 0.08  # and torn earlier still: where much is left that is of no use, luck decides
MUCH_SHARE = 0.03
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

    def less_bytes(self, room_bytes: int) -> tuple[int, int]:
        """How much of a card's pool must be left over for a simulated step that finds room in it to be sure to: before it is full, and before it is torn."""
        return int(GONE_SHARE * room_bytes) + self.above_bytes, int(TORN_SHARE * room_bytes) + self.above_bytes


def is_torn(failure: Failure, room_bytes: int) -> bool:
    """Whether much more was free than was asked for."""
    return failure.free_bytes - failure.asked_bytes > MUCH_SHARE * room_bytes


def share_of(work: Graph | EagerTrace, gpu: Gpu, peak_bytes: int, *, growth: bool, pages: bool = False) -> float:
    """By how much of itself a step on a card may take more than was simulated. Of an algorithm of cuDNN's all that is known is that it may copy its convolution's arrays."""
    if (growth and not pages) or not isinstance(work, Graph) or has_recurrent_kernels(work):
        return SHARE
    pool = MEASURED_SHARE if gpu.compute_capability == MEASURED_CAPABILITY else POOL_SHARE
    sure = PAGES_SHARE if pages else pool
    return min(SHARE, sure + convolved_bytes(work) / max(1, peak_bytes))


def arriving_bytes(work: Graph | EagerTrace) -> int:
    """The largest array of a batch that comes to a card with every step. It wants a hole of its size in what the step before has left: an MLP on an H200
    whose batch takes 27% of the pool ran out with 27% free, where optimizer slots lay in the middle of it, higher up than they do in the simulation."""
    if not isinstance(work, Graph):
        return 0
    return max((work.tensors[tensor].size_bytes for tensor in work.arguments), default=0)


def doubt_of(work: Graph | EagerTrace, *, share: float | None, tears: bool = True) -> Doubt:
    """What is open of that step on a card of which it may take that share more, or (None) on a CPU; from a pool that may tear, or one that does not."""
    on_cpu = share is None
    unknown, undecided = unknown_bytes(work), work.undecided_bytes if isinstance(work, Graph) else 0
    inside = compiled_bytes(work) * (CPU_COMPILED_TIMES if on_cpu else GPU_COMPILED_TIMES)
    shares = (CPU_HIGH_SHARE, CPU_LATER_SHARE) if share is None else (share, share)
    arriving = arriving_bytes(work) if tears and share is not None and share < SHARE else 0
    return Doubt(*shares, unknown, inside + undecided + arriving)


def bounds_of(outcome: Outcome, doubt: Doubt) -> Bounds:
    """The range in which the peak lies: that of the runs, widened."""
    wide = min(int(UNKNOWN_SHARE * doubt.unknown_bytes), max(outcome.peaks) // 2)
    low = min((*outcome.peaks, *outcome.later_peaks))
    high = max(max(outcome.peaks) * (1 + doubt.share), max(outcome.later_peaks, default=0) * (1 + doubt.later_share))
    most = int(high) + wide + doubt.above_bytes
    return Bounds(low_bytes=max(0, int(low * (1 - SHARE)) - wide), high_bytes=most)
