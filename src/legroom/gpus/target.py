"""A card as XLA wants it described to compile for it: the text form of its GpuTargetConfigProto."""

import json

from legroom.errors import InputError
from legroom.gpus.card import Gpu

_TEMPLATE = """\
gpu_device_info {{
  threads_per_block_limit: {limits.threads_per_block}
  threads_per_warp: {limits.threads_per_warp}
  shared_memory_per_block: {limits.shared_bytes_per_block}
  shared_memory_per_core: {limits.shared_bytes_per_sm}
  threads_per_core_limit: {limits.threads_per_sm}
  core_count: {gpu.sm_count}
  fpus_per_core: {limits.cores_per_sm}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {gpu.bandwidth_bytes_per_second}
  l2_cache_size: {gpu.l2_bytes}
  clock_rate_ghz: {gpu.clock_ghz}
  device_memory_size: {memory_bytes}
  shared_memory_per_block_optin: {limits.shared_bytes_per_block_optin}
  cuda_compute_capability {{ major: {gpu.compute_capability[0]} minor: {gpu.compute_capability[1]} }}
  registers_per_core_limit: {limits.registers_per_sm}
  registers_per_block_limit: {limits.registers_per_block}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 patch: 0 }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: {description}
"""


def target_description(gpu: Gpu, memory_bytes: int | None = None) -> str:
    """The target to compile for; XLA rematerialises to fit `memory_bytes`, by default all that the card has."""
    if memory_bytes is None:
        memory_bytes = gpu.memory_bytes
    if memory_bytes <= 0:
        raise InputError(
            f"A target's memory must be positive; received {memory_bytes!r} bytes for {gpu.name}.",
            "Leave it out for all that the card has.",
        )
    description = json.dumps(gpu.name, ensure_ascii=False)
    return _TEMPLATE.format(gpu=gpu, limits=gpu.limits, memory_bytes=memory_bytes, description=description)
