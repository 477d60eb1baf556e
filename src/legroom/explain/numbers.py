"""The numbers of one incident, from wherever the log says them, ready to reckon with."""

import re
from dataclasses import dataclass

from legroom.explain.incidents import Incident
from legroom.explain.layers import layer_in
from legroom.explain.sizes import tensor_bytes
from legroom.explain.story import Story
from legroom.records.diagnosis import Pool

ABSEIL = re.compile(r"^\W{0,8}[IWEF]0000 00:00:")  # how TensorFlow logs since it came with Keras 3
CPU_ALLOCATORS = ("cpu", "mklcpu", "bfc_cpu", "cuda_host", "gpu_host", "cpu_host")


@dataclass(frozen=True, slots=True)
class Numbers:
    """What was asked for, what there was; None is what the log does not say. `room_bytes` is what the pool could still grow by."""

    failed_bytes: int | None
    shape: tuple[int, ...] | None
    dtype: str | None
    op: str | None
    layer: str | None
    device: str | None
    allocator: str | None
    limit_bytes: int | None
    in_use_bytes: int | None
    free_bytes: int | None
    largest_free_bytes: int | None
    reserved_bytes: int | None
    pool: Pool | None

    @property
    def room_bytes(self) -> int | None:
        if self.limit_bytes is None or self.reserved_bytes is None:
            return None
        return max(0, self.limit_bytes - self.reserved_bytes)

    @property
    def tensor_bytes(self) -> int | None:
        return tensor_bytes(self.shape, self.dtype, 4)


def numbers_of(incident: Incident, story: Story) -> Numbers:
    pool = None if incident.pool.is_empty else incident.pool.build()
    device = device_of(incident)
    limit = incident.value("limit_bytes") or (pool.limit_bytes if pool else None)
    in_use = incident.value("in_use_bytes") or (pool.in_use_bytes if pool else None)
    if "cgroup" in incident.said:
        in_use, limit = incident.value("cgroup")
    if limit is None and incident.kind in ("pool", "tensor", "copy", "xla", "autotune"):
        limit = created_with(story, device)
    free = incident.value("free_bytes")
    if free is None and pool is not None and "driver_free" in incident.pool.said:
        free = incident.pool.said["driver_free"].value[0]
    if free is None and limit is not None and in_use is not None:
        free = max(0, limit - in_use)
    op = incident.value("op") or incident.value("node") or incident.value("kind") or peak_op(incident)
    is_keras_3 = bool(ABSEIL.match(incident.opened.text))
    return Numbers(
        failed_bytes=incident.failed_bytes,
        shape=incident.shape,
        dtype=incident.value("dtype"),
        op=op,
        layer=incident.value("layer") or layer_in(op, is_keras_3) or layer_in(incident.value("node"), is_keras_3),
        device=device,
        allocator=incident.value("allocator"),
        limit_bytes=limit,
        in_use_bytes=in_use,
        free_bytes=free,
        largest_free_bytes=largest_hole(pool),
        reserved_bytes=pool.reserved_bytes if pool else None,
        pool=pool,
    )


def device_of(incident: Incident) -> str | None:
    """As the text names it, else by the allocator's name."""
    device: str | None = incident.value("device") or incident.value("device_hint")
    allocator = incident.value("allocator")
    if device is not None or allocator is None:
        return device
    if allocator.startswith("GPU_"):
        return f"GPU:{allocator.split('_')[1]}"
    if allocator.startswith("gpu_async_"):
        return f"GPU:{allocator.rsplit('_', 1)[1]}"
    return "CPU:0" if allocator.startswith(CPU_ALLOCATORS) else None


def largest_hole(pool: Pool | None) -> int | None:
    """None where the dump lists no chunks; a dump with chunks and no free one has no hole."""
    if pool is None or not (pool.holes or pool.held):
        return None
    if pool.holes:
        return pool.holes[0]
    return 0 if pool.reserved_bytes is not None else None


def created_with(story: Story, device: str | None) -> int | None:
    """What TensorFlow said it would use of the card when it made the device."""
    for fact in story.all("device_limit"):
        if device is None or fact.value[0].upper() == device:
            size: int = fact.value[1]
            return size
    return None


def peak_op(incident: Incident) -> str | None:
    """The operation behind XLA's largest buffer."""
    ops = incident.lists.get("buffer_op", [])
    return ops[0].value if ops else None
