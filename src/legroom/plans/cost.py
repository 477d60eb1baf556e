"""How long a step takes on a card, by a roofline: every flop at the card's rate, every byte at its bandwidth.

Only ratios of it are shown. Real kernels reach neither rate; a step and the same step changed miss them alike.
"""

from legroom.gpus import Gpu
from legroom.records import Estimate

PRECISIONS = {"mixed_bfloat16": "bf16", "mixed_float16": "fp16", "float32": "fp32"}

LEAST_WORK = 0.95  # of the plain step's


def seconds(estimate: Estimate, gpu: Gpu, policy: str = "float32") -> float:
    """The step's time; compute and memory are taken one after the other, which is the slowest that a good kernel is."""
    rates = dict(gpu.rates)
    rate = rates.get(PRECISIONS.get(policy, "fp32")) or rates.get("tf32") or max(rates.values())
    return estimate.flops / rate + estimate.moved_bytes / gpu.bandwidth_bytes_per_second


def slowdown(changed: Estimate, plain: Estimate, gpu: Gpu, policy: str = "float32") -> float | None:
    """How much longer the changed step takes, or None where it cannot be known.

    No action makes the work less, so where less is counted, the turns of a loop were not, because it does not say how many.
    """
    before = seconds(plain, gpu, policy)
    if not before or changed.flops < LEAST_WORK * plain.flops:
        return None
    return max(1.0, seconds(changed, gpu, policy) / before)
