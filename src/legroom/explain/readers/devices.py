"""Devices and frameworks beside TensorFlow, JAX and PyTorch, and the memory inside a core that a single kernel uses up.

From the sources of CuPy, Theano, Paddle, ONNX Runtime, MLX, TensorFlow Lite, TensorFlow.js, TensorRT, NCCL, Triton, XLA and vLLM.
"""

from collections.abc import Iterator
from typing import Any

from legroom.explain.readers.messages import message, phrases, read_messages, sized

DEVICE = ("oom", "device")
TOO_LARGE = ("too_large", None)
ON_CHIP = (("oom", "hbm"), ("on_chip", "shared memory"))
HARMLESS = ("harmless", None)
MESSAGES = (
    message("allocated so far:", DEVICE, pattern=rf"Out of memory allocating {sized('failed_bytes')}"),
    message(
        "bytes of device memory",
        DEVICE,
        pattern=rf"Error allocating {sized('failed_bytes')} of device memory"
        rf"(?:.{{0,80}}Driver report {sized('free_bytes')} free and {sized('limit_bytes')} total)?",
    ),
    message(
        "memory on GPU",
        DEVICE,
        pattern=rf"Cannot allocate {sized('failed_bytes')} memory on GPU \d{{1,4}}, {sized('in_use_bytes')} memory has been allocated and "
        rf"available memory is only {sized('free_bytes')}",
    ),
    message("for requested buffer of size", DEVICE, pattern=rf"requested buffer of size {sized('failed_bytes')}"),
    message(
        "is smaller than requested bytes",
        DEVICE,
        pattern=rf"Available memory of {sized('free_bytes')} is smaller than requested bytes of {sized('failed_bytes')}",
    ),
    message("Could not allocate tensor with", DEVICE, pattern=rf"allocate tensor with {sized('failed_bytes')}"),
    message("HRESULT failed with 0x8007000", DEVICE, pattern="0x8007000[eE]"),
    message(
        "Failed to resize buffer",
        DEVICE,
        pattern=rf"Requested: {sized('failed_bytes')}, available {sized('free_bytes')}",
    ),
    message(
        "Failed to allocate tail memory",
        DEVICE,
        pattern=rf"Requested: {sized('failed_bytes')}, available {sized('free_bytes')}",
    ),
    message(
        "Arena size is too small",
        ("oom", "hbm"),
        pattern=rf"Needed {sized('failed_bytes')} but only {sized('limit_bytes')} was available",
    ),
    message("Requested amount of GPU memory", DEVICE, pattern=rf"GPU memory \({sized('failed_bytes')}\) could not"),
    message("Cuda Runtime (out of memory)", DEVICE),
    message("OUT_OF_RESOURCES", DEVICE, pattern=r"(?:PI|UR|HSA_STATUS|CL|ZE_RESULT)\w{0,16}_OUT_OF_RESOURCES"),
    message("MEM_OBJECT_ALLOCATION_FAILURE", DEVICE),
    message("nrt_", DEVICE, pattern=rf"[Ff]ailed to allocate {sized('failed_bytes')}"),
    message("Invalid buffer size:", DEVICE, TOO_LARGE, pattern=rf"Invalid buffer size: {sized('failed_bytes')}"),
    message("total bytes of NDArray", DEVICE, TOO_LARGE),
    message(
        "maximum allowed buffer size",
        DEVICE,
        TOO_LARGE,
        pattern=rf"allocate {sized('failed_bytes')} which is greater than the maximum allowed buffer size of {sized('limit_bytes')}",
    ),
    message("greater than WebGL maximum", DEVICE, TOO_LARGE),
    message("more than 1EB memory", DEVICE, TOO_LARGE),
    message("larger than the maximum possible size", DEVICE, TOO_LARGE),
    message("Maximum allowed dimension exceeded", DEVICE, TOO_LARGE),
    message("High memory usage in GPU", ("growing", None)),
    message(
        "on startup is less than desired",
        DEVICE,
        ("taken", None),
        pattern=rf"Free memory on device[^(]{{0,20}} \({sized('free_bytes')}/{sized('limit_bytes')}\)",
    ),
    message("NCCL WARN Cuda failure", ("driver_out", None), pattern="out of memory"),
    message("Failed to CUDA", pattern=rf"Failed to CUDA \w{{1,12}} {sized('refused')}"),
    message(
        "out of resource: shared memory",
        *ON_CHIP,
        pattern=rf"shared memory, Required: {sized('failed_bytes')}, Hardware limit: {sized('limit_bytes')}",
    ),
    message("uses too much shared data", *ON_CHIP),
    message(
        "exceeds the memory limit of",
        ("oom", "autotune"),
        ("autotune", None),
        pattern=rf"Allocating {sized('failed_bytes')} exceeds the memory limit of {sized('limit_bytes')}",
    ),
    message("is insufficient to use tactic", HARMLESS),
    message("Skipping tactic", HARMLESS, pattern="insufficient memory"),
    message(
        "exceeds the base limit",
        pattern=rf"size of input/output arguments \({sized('arguments_exceed')}\) exceeds the base limit",
    ),
)
STRONG = phrases(MESSAGES)


def read(text: str) -> Iterator[tuple[str, Any]]:
    yield from read_messages(MESSAGES, text)
