"""How much of a card a framework's allocator can hand out.

The CUDA context comes off the total first. It is larger the more threads the card can hold: 2 KiB for each and 32 MiB
fit what the totals and TensorFlow's own log lines leave between them (T4 110 MiB, L4 190, V100 320 to 470, A100 440 to
470, H100 450 to 480; an H200 took 531 MiB before its first tensor, the rule says 560).

TensorFlow then keeps back what `MinSystemMemory` in gpu_device.cc says: 225 MiB when less than 2 GiB are free, else 500,
1050, 1536 or 1800 MiB by the compute capability's major number (up to 6, 7, 8, from 9 on). cuDNN, cuBLAS and kernels
live in it. The result is within 3% of the "Created device … with N MB memory" lines of T4, P100, V100, A100, L4, A6000,
RTX 3090, RTX 4090, H100 and H200 in public logs, where nothing else was on the card; a desktop's display is not counted.

JAX takes 75% of the total (`XLA_PYTHON_CLIENT_MEM_FRACTION`), to the byte in logs.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from legroom.errors import InputError
from legroom.gpus.card import Gpu
from legroom.units import GIB, KIB, MIB

Framework = Literal["tensorflow", "jax"]

_CONTEXT_BASE_BYTES = 32 * MIB
_CONTEXT_BYTES_PER_THREAD = 2 * KIB
_JAX_SHARE = (3, 4)


@dataclass(frozen=True, slots=True)
class Usable:
    """A card's memory in three parts that add up to `total_bytes`: CUDA's, what is kept back, what can be used."""

    total_bytes: int
    context_bytes: int
    reserve_bytes: int
    usable_bytes: int


def usable_memory(gpu: Gpu, framework: Framework) -> Usable:
    """The parts of the card's memory under a framework's default settings; a card too small for CUDA has no usable one."""
    if framework not in get_args(Framework):
        known = " or ".join(get_args(Framework))
        raise InputError(f"No memory rule for the framework {framework!r}.", f"Legroom knows {known}.")
    total = gpu.memory_bytes
    context = min(context_bytes(gpu), total)
    free = total - context
    if framework == "jax":
        usable = min(total * _JAX_SHARE[0] // _JAX_SHARE[1], free)
    else:
        usable = max(free - _tensorflow_reserve_bytes(free, gpu.compute_capability[0]), 0)
    return Usable(total, context, free - usable, usable)


def usable_bytes(gpu: Gpu, framework: Framework) -> int:
    """What the framework's allocator can hand out by default."""
    return usable_memory(gpu, framework).usable_bytes


def jax_pool_bytes(gpu: Gpu, percent: int) -> int:
    """What JAX can hand out where its pool is so much of the card (XLA_PYTHON_CLIENT_MEM_FRACTION)."""
    return max(0, min(gpu.memory_bytes * percent // 100, gpu.memory_bytes - context_bytes(gpu)))


def context_bytes(gpu: Gpu) -> int:
    """What the CUDA context takes before the first tensor."""
    return _CONTEXT_BASE_BYTES + _CONTEXT_BYTES_PER_THREAD * gpu.sm_count * gpu.limits.threads_per_sm


def _tensorflow_reserve_bytes(free_bytes: int, major: int) -> int:
    if free_bytes < 2 * GIB:
        return 225 * MIB
    if major <= 6:
        return 500 * MIB
    return {7: 1050 * MIB, 8: 1536 * MIB}.get(major, 1800 * MIB)
