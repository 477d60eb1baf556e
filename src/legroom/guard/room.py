"""What the device's allocator has left: its counters where it keeps some, and a question that only it can answer.

Private names used, tested with TensorFlow 2.21.0: `context.get_memory_info` (a few microseconds; the public function takes ten
times as long).
"""

import os
from dataclasses import dataclass, field
from typing import Any

from legroom.units import MIB

ASK_AGAIN = 1000  # refusals that are taken for granted before the allocator is asked once more


@dataclass
class Room:
    """One device's memory, as TensorFlow's allocator hands it out."""

    device: str = ""
    counted: bool = True
    refused: int | None = None  # bytes in use and asked for together, the last time that there was no room
    assumed: int = 0
    limit: int | None = None
    shapes: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import tensorflow as tf

        self.device = self.device or ("GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0")
        self.counted = self.in_use_bytes() is not None
        self.limit = self.limit_bytes()

    def in_use_bytes(self) -> int | None:
        """What is allocated now, None where nobody counts."""
        return self.counter("current")

    def peak_bytes(self) -> int | None:
        return self.counter("peak")

    def counter(self, name: str) -> int | None:
        from tensorflow.python.eager import context

        if not self.counted:
            return None
        try:
            return int(context.context().get_memory_info(self.device)[name])
        except (ValueError, RuntimeError):
            return None

    def limit_bytes(self) -> int | None:
        """The most that this allocator will hand out, None where that cannot be known."""
        import tensorflow as tf

        if self.device.startswith("GPU"):
            for physical in tf.config.list_physical_devices("GPU")[:1]:
                for config in tf.config.get_logical_device_configuration(physical) or ():
                    if config.memory_limit:
                        return int(config.memory_limit) * MIB
            return None
        given = os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB", "")
        return int(given) * MIB if given.isdigit() and os.environ.get("TF_CPU_ALLOCATOR_USE_BFC") == "1" else None

    def free_bytes(self) -> int | None:
        limit, used = self.limit, self.in_use_bytes()
        return None if limit is None or used is None else max(limit - used, 0)

    def has(self, size_bytes: int) -> bool:
        """Whether one piece of that size can be had at this moment: it is taken, not filled, and given back.

        It is not asked where the counters say no, and a refusal is remembered: TensorFlow waits ten seconds before each one
        (`AllocationRetry`), and writes a page of log.
        """
        import tensorflow as tf

        used = self.in_use_bytes()
        if self.limit is not None and used is not None and used + size_bytes > self.limit:
            return False
        if self.refused is not None and used is not None and used + size_bytes >= self.refused:
            self.assumed += 1
            if self.assumed < ASK_AGAIN:
                return False
        self.assumed = 0
        shape = self.shapes.get(size_bytes)
        if shape is None:
            with tf.device("CPU:0"):
                shape = self.shapes[size_bytes] = tf.constant(dimensions(size_bytes))
        try:
            tf.raw_ops.Empty(shape=shape, dtype=tf.uint8, init=False)
        except tf.errors.ResourceExhaustedError:
            self.refused = None if used is None else used + size_bytes
            return False
        self.refused = None
        return True


def dimensions(size_bytes: int) -> list[int]:
    """A shape of so many bytes, each number of it small enough for 32 bits."""
    return [size_bytes] if size_bytes < 2**31 else [-(-size_bytes // MIB), MIB]
