"""How much is in use now: the device by its allocator's counters, the host by the process's resident pages.

Private names used, tested with TensorFlow 2.21.0: `context.get_memory_info` and `context.reset_memory_stats` (about a microsecond
each). JAX's `device.memory_stats()` is public, and None on a CPU; its peak cannot be put back, and is that of the whole run.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

PAUSE = 0.05  # seconds between two questions to psutil, where there is no /proc


class Counter(Protocol):
    """A device's allocator: bytes in use, and the most since it was asked last; None where nobody counts."""

    def read(self) -> tuple[int | None, int | None]: ...


class Uncounted:
    """A device whose memory nobody counts."""

    def read(self) -> tuple[int | None, int | None]:
        return None, None


class TensorFlowCounter:
    """TensorFlow's allocator; its peak is put back at every question, so that each step has its own."""

    def __init__(self) -> None:
        import tensorflow as tf
        from tensorflow.python.eager import context

        self.device = "GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0"
        self.context: Any = context.context()
        self.context.get_memory_info(self.device)

    def read(self) -> tuple[int | None, int | None]:
        info = self.context.get_memory_info(self.device)
        self.context.reset_memory_stats(self.device)
        return info["current"], info["peak"]


class JaxCounter:
    """The first local JAX device."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def read(self) -> tuple[int | None, int | None]:
        stats = self.device.memory_stats() or {}
        return stats.get("bytes_in_use"), stats.get("peak_bytes_in_use")


def find_counter() -> Counter:
    """The counter of the framework that trains here. None is imported for it: what trains is imported already."""
    keras: Any = sys.modules.get("keras")
    on_jax = "jax" in sys.modules and ("tensorflow" not in sys.modules or is_jax(keras))
    if on_jax:
        device = sys.modules["jax"].local_devices()[0]
        return JaxCounter(device) if device.memory_stats() else Uncounted()
    if "tensorflow" in sys.modules:
        try:
            return TensorFlowCounter()
        except (ValueError, RuntimeError):
            return Uncounted()
    return Uncounted()


def is_jax(keras: Any) -> bool:
    config = getattr(keras, "config", None)
    return config is not None and config.backend() == "jax"


def resident_bytes() -> Callable[[], int]:
    """A function that says how much RAM this process holds: from /proc in a microsecond, else from psutil, now and then."""
    if os.path.exists("/proc/self/statm"):
        return StatmReader()
    return PsutilReader()


class StatmReader:
    """The second number of /proc/self/statm, in pages."""

    def __init__(self) -> None:
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self) -> int:
        return int(os.pread(self.file, 64, 0).split(maxsplit=2)[1]) * self.page

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # when Python ends, `os` may be gone before
        close(self.file)


class PsutilReader:
    """psutil's answer, at most every 50 ms."""

    def __init__(self) -> None:
        import psutil

        self.process = psutil.Process()
        self.then, self.last = -PAUSE, 0

    def __call__(self) -> int:
        now = time.monotonic()
        if now - self.then >= PAUSE:
            self.then, self.last = now, int(self.process.memory_info().rss)
        return self.last
