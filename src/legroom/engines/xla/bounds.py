"""How far the compiled total can be from what the step really takes on the card (docs/accuracy.md).

What the compiler cannot know without the card is which algorithms it will find fastest. What it cannot know at all is what
TensorFlow's allocator adds: it hands out a free chunk whole when less than 128 MiB of it would be left over, for the
temporaries as for each variable.
"""

from legroom.engines.xla.releases import Release
from legroom.gpus import Gpu
from legroom.memory.estimate import Bounds
from legroom.records import Program, Step
from legroom.units import MIB

SHARE = 0.05  # algorithms, fusions and schedules that a real card's timings decide
OTHER_RELEASE_SHARE = 0.05  # more where the compiler is not the user's own
WIDEST_SHARE, WIDEST_BYTES = 0.12, 64 * MIB  # past this a bound is of no use to anybody
UNSPLIT_BYTES = 128 * MIB  # BFC's kMaxInternalFragmentation
VARIABLES_SHARE = 0.25  # the most that variables were seen to take beyond their size, on TensorFlow
TRIED = 20  # the most that an algorithm was seen to want, of the largest array of its convolution
LEFT_BEHIND = 3  # such arrays, the most that were still held at the first step after some algorithm had found no room
JAX_BYTES = 64 * MIB  # libraries' scratch that is not the program's


def bounds_of(step: Step, program: Program, release: Release, gpu: Gpu) -> Bounds:
    """The range in which the peak lies."""
    peak = program.total_bytes + step.resident_bytes
    convolves = any(i.opcode == "convolution" or "$conv" in i.opcode for i in program.schedule)
    share = SHARE + (OTHER_RELEASE_SHARE if not release.matches else 0)
    # Float32 convolutions have no tensor cores before Ampere, and what cuDNN takes instead varies most.
    if convolves and gpu.compute_capability < (8, 0):
        share = WIDEST_SHARE
    extra = JAX_BYTES
    if step.framework == "tensorflow":
        variables = sum(step.sum_bytes(role) for role in ("weight", "state", "optimizer"))
        extra = UNSPLIT_BYTES + int(VARIABLES_SHARE * variables)
    high = min(int(peak * (1 + share)) + extra, int(peak * (1 + WIDEST_SHARE)) + WIDEST_BYTES)
    return Bounds(low_bytes=int(peak * (1 - share)), high_bytes=high)


def left_by_tuning(step: Step, program: Program, usable_bytes: int) -> int | None:
    """What may be held beside the step when it runs for the first time, or None: XLA tries algorithms for its convolutions before
    that, and where one of them asks for more than there is, arrays of what was tried stay behind (docs/plan.md)."""
    held = sum(step.sum_bytes(role) for role in ("weight", "state", "optimizer", "input"))
    if not program.tuned_bytes or TRIED * program.tuned_bytes <= usable_bytes - held:
        return None
    return LEFT_BEHIND * program.tuned_bytes
