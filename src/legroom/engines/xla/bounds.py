"""How far the compiled total can be from what the step really takes on the card (docs/accuracy.md).

What the compiler cannot know without the card is which algorithms it will find fastest. What TensorFlow's allocator adds is simulated
(`engines/xla/pool.py`).
"""

from legroom.engines.bfc import MOST_WASTE_BYTES
from legroom.engines.xla.releases import Release
from legroom.gpus import Gpu
from legroom.memory.estimate import Bounds
from legroom.records import Program, Step
from legroom.units import MIB

SHARE = 0.05  # algorithms, fusions and schedules that a real card's timings decide
MEASURED_SHARE = 0.0125  # on TensorFlow and the kind of card that could be measured (docs/accuracy-plan.md)
MEASURED_CAPABILITY = 9, 0
OTHER_RELEASE_SHARE = 0.05  # more where the compiler is not the user's own
WIDEST_SHARE, WIDEST_BYTES = 0.12, 64 * MIB  # past this a bound is of no use to anybody
TRIED = 20  # the most that an algorithm was seen to want, of the largest array of its convolution
LEFT_BEHIND = 3  # such arrays, the most that were still held at the first step after some algorithm had found no room
SCRATCH_BYTES = 64 * MIB  # libraries' scratch that is not the program's


def share_of(step: Step, program: Program, release: Release, gpu: Gpu) -> float:
    """By how much of itself the program may be larger or smaller."""
    convolves = any(i.opcode == "convolution" or "$conv" in i.opcode for i in program.schedule)
    is_measured = step.framework == "tensorflow" and gpu.compute_capability == MEASURED_CAPABILITY
    share = MEASURED_SHARE if is_measured else SHARE
    # Float32 convolutions have no tensor cores before Ampere, and what cuDNN takes instead varies most.
    if convolves and gpu.compute_capability < (8, 0):
        return WIDEST_SHARE
    return share + (OTHER_RELEASE_SHARE if not release.matches else 0)


def bounds_around(peak_bytes: int, share: float) -> Bounds:
    """The range in which the peak lies, by that share and what libraries take."""
    high = int(peak_bytes * (1 + share)) + SCRATCH_BYTES
    most = int(peak_bytes * (1 + WIDEST_SHARE)) + WIDEST_BYTES
    return Bounds(low_bytes=int(peak_bytes * (1 - share)), high_bytes=min(high, most))


def pool_bounds(total_bytes: int, beside_bytes: int, high_bytes: int, *, growth: bool) -> Bounds:
    """The range in which the peak in TensorFlow's pool lies, where that much was simulated at most. What trying algorithms makes of the regions
    of a pool that grows is not known: one hole more may be handed out whole. A card that finds other products faster may take much less."""
    if growth:
        most = int((total_bytes + beside_bytes) * (1 + WIDEST_SHARE)) + WIDEST_BYTES
        high_bytes = max(high_bytes, min(high_bytes + MOST_WASTE_BYTES, most))
    return Bounds(
        low_bytes=int(total_bytes * (1 - WIDEST_SHARE)), high_bytes=max(high_bytes, total_bytes + beside_bytes)
    )


def left_by_tuning(step: Step, program: Program, usable_bytes: int) -> int | None:
    """What may be held beside the step when it runs for the first time, or None: XLA tries algorithms for its convolutions before
    that, and where one of them asks for more than there is, arrays of what was tried stay behind (docs/accuracy-plan.md). On TensorFlow that is simulated (`trials.py`)."""
    held = sum(step.sum_bytes(role) for role in ("weight", "state", "optimizer", "input"))
    if not program.tuned_bytes or TRIED * program.tuned_bytes <= usable_bytes - held:
        return None
    return LEFT_BEHIND * program.tuned_bytes
