"""How long a step takes on a card, by a roofline and by how often something is started. Only ratios of it are shown.

Fitted to steps timed on an H200 (bench/plan_times.py, docs/accuracy-plan.md): kernels reach about two thirds of the card's rates; a compiled
program's kernels take turns, so that starting them adds up; op by op the host prepares ops while the card computes, and the
slower of the two decides. On a fast card with small batches that is the host. A step on a CPU is simulated with the times of its kernels, side by side
as threads run them, which says how long it takes.
"""

from legroom.gpus import Gpu
from legroom.records import Estimate

REACHED = 0.65  # of a card's rates
KERNEL_SECONDS = 2.3e-6  # to start a kernel of a compiled program
OP_SECONDS = 10e-6  # of the host's, for each op
PRECISIONS = {"mixed_bfloat16": ("bf16",), "mixed_float16": ("fp16",), "float32": ("tf32", "fp32")}
LEAST_WORK = 0.95  # of the plain step's


def seconds(estimate: Estimate, gpu: Gpu, policy: str = "float32") -> float:
    """The step's time; compute and memory are taken one after the other, which is the slowest that a good kernel is."""
    rates = dict(gpu.rates)
    names = (*PRECISIONS.get(policy, PRECISIONS["float32"]), *PRECISIONS["float32"])
    rate = next(rates[name] for name in names if name in rates)
    work = (estimate.flops / rate + estimate.moved_bytes / gpu.bandwidth_bytes_per_second) / REACHED
    if estimate.engine == "op":
        return max(work, estimate.launches * OP_SECONDS)
    return work + estimate.launches * KERNEL_SECONDS


def slowdown(changed: Estimate, plain: Estimate, gpu: Gpu, policy: str = "float32") -> float | None:
    """How much longer the changed step takes, which computes in that policy, or None where it cannot be known.

    No action makes the work less, so where less is counted, the turns of a loop were not, because it does not say how many.
    """
    before = seconds(plain, gpu)
    if not before or changed.flops < LEAST_WORK * plain.flops:
        return None
    if plain.step_seconds and changed.step_seconds:
        return changed.step_seconds / plain.step_seconds
    return seconds(changed, gpu, policy) / before
