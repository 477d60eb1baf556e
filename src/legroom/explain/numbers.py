"""The numbers of one incident, from wherever the log says them, ready to reckon with."""

import re
from dataclasses import dataclass
from typing import Any

from legroom.explain.incidents import Incident
from legroom.explain.layers import layer_in
from legroom.explain.sizes import tensor_bytes
from legroom.explain.story import Story
from legroom.records.diagnosis import Pool

ABSEIL = re.compile(r"^\W{0,8}[IWEF]0000 00:00:")  # how TensorFlow logs since it came with Keras 3
CPU_ALLOCATORS = ("cpu", "mklcpu", "bfc_cpu", "cuda_host", "gpu_host", "cpu_host", "xla_gpu_host")


@dataclass(frozen=True, slots=True)
class Numbers:
    """What was asked for, what there was; None is what the log does not say. `room_bytes` is what the pool could still grow by."""

    failed_bytes: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    op: str | None = None
    layer: str | None = None
    device: str | None = None
    allocator: str | None = None
    limit_bytes: int | None = None
    in_use_bytes: int | None = None
    free_bytes: int | None = None
    largest_free_bytes: int | None = None
    reserved_bytes: int | None = None
    pool: Pool | None = None

    @property
    def room_bytes(self) -> int | None:
        if self.limit_bytes is None or self.reserved_bytes is None:
            return None
        return max(0, self.limit_bytes - self.reserved_bytes)

    @property
    def is_on_cpu(self) -> bool:
        return (self.device or "").startswith("CPU") or (self.allocator or "").startswith(CPU_ALLOCATORS)

    @property
    def tensor_bytes(self) -> int | None:
        return tensor_bytes(self.shape, self.dtype, 4)


def numbers_of(incident: Incident, story: Story) -> Numbers:
    pool = None if incident.pool.is_empty else incident.pool.build()
    device = device_of(incident) or only_device(story)
    limit, in_use = incident.value("limit_bytes"), incident.value("in_use_bytes")
    if pool is not None:
        limit = pool.limit_bytes if limit is None else limit
        in_use = pool.in_use_bytes if in_use is None else in_use
    if "cgroup" in incident.said:
        in_use, limit = incident.value("cgroup")
    if limit is None and incident.kind == "killed":
        limit = pod_limit(story)
    if limit is None and incident.kind in ("pool", "tensor", "copy", "xla", "autotune"):
        limit = created_with(story, device)
    free = incident.value("free_bytes")
    if free is None and pool is not None and "driver_free" in incident.pool.said:
        free = incident.pool.said["driver_free"].value[0]
    if free is None and limit is not None and in_use is not None:
        free = max(0, limit - in_use)
    op = incident.value("op") or incident.value("node") or incident.value("kind") or peak_op(incident)
    op = op or incident.value("called")
    shape, given_dtype = incident.given()
    is_keras_3 = bool(ABSEIL.match(incident.opened.text))
    return Numbers(
        failed_bytes=incident.failed_bytes if given_dtype is None else tensor_bytes(shape, given_dtype),
        shape=shape,
        dtype=incident.value("dtype") or incident.value("node_dtype") or given_dtype,
        op=op,
        layer=incident.value("layer") or layer_in(op, is_keras_3) or layer_in(incident.value("node"), is_keras_3),
        device=device,
        allocator=incident.value("allocator"),
        limit_bytes=limit,
        in_use_bytes=in_use,
        free_bytes=free,
        largest_free_bytes=incident.value("largest_free") if pool is None else largest_hole(pool),
        reserved_bytes=pool.reserved_bytes if pool else None,
        pool=pool,
    )


def numbers_beside(story: Story) -> Numbers:
    """What the log says where no allocation of the program failed: the driver's refusals, the card, the node that could not start."""

    def first(name: str) -> Any:
        return next((fact.value for fact in story.all(name)), None)

    op = first("node") or first("kind")
    return Numbers(
        failed_bytes=first("refused"),
        device=first("no_context"),
        op=op,
        layer=layer_in(op),
        allocator=first("warning_allocator"),
        limit_bytes=first("card_bytes" if story.has("card_bytes") else "smi_bytes"),
        free_bytes=first("card_free_bytes" if story.has("card_bytes") else "smi_free_bytes"),
    )


def warned_bytes(story: Story) -> int | None:
    """What the allocator could not give, and the caller could do without."""
    return next((fact.value for fact in story.all("harmless") if fact.value is not None), None)


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


def only_device(story: Story) -> str | None:
    """The one device that the nodes of a log are on, if they are on one."""
    devices = {fact.value for fact in story.all("device_hint")}
    return devices.pop() if len(devices) == 1 else None


def largest_hole(pool: Pool | None) -> int | None:
    """Without a free chunk in the list there is no hole only where the chunks in use make up all that the pool has."""
    if pool is None or not pool.holes:
        listed = 0 if pool is None else sum(size * count for size, count in pool.held)
        return 0 if listed and pool is not None and listed == pool.reserved_bytes else None
    return pool.holes[0]


def created_with(story: Story, device: str | None) -> int | None:
    """What TensorFlow said it would use of the card when it made the device."""
    for fact in story.all("device_limit"):
        if device is None or fact.value[0].upper() == device:
            size: int = fact.value[1]
            return size
    return None


def pod_limit(story: Story) -> int | None:
    """The memory that stands under `Limits:` where Kubernetes describes a pod."""
    starts = [fact.line for fact in story.all("pod_limits")]
    limits = [fact.value for fact in story.all("pod_memory") if any(0 < fact.line - start <= 4 for start in starts)]
    return min(limits, default=None)


def peak_op(incident: Incident) -> str | None:
    """The operation behind XLA's largest buffer."""
    ops = incident.lists.get("buffer_op", [])
    return ops[0].value if ops else None
