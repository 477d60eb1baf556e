"""Samples for TensorBoard, through TensorFlow's own writer: at most two a second, the largest of what was between them.

They are written as TensorBoard's scalars, by `tf.summary.write`: `tf.summary.scalar` needs TensorBoard itself to be installed.
"""

import time
from pathlib import Path
from typing import Any

from legroom.errors import MissingError

PAUSE = 0.5  # seconds


class Board:
    """A folder for TensorBoard. TensorFlow is imported for it, also where JAX trains."""

    def __init__(self, log_dir: str | Path) -> None:
        try:
            import tensorflow as tf
        except ImportError as error:
            raise MissingError("Samples for TensorBoard need TensorFlow.", "pip install tensorflow") from error
        self.summary: Any = tf.summary
        self.kind: Any = tf.compat.v1.SummaryMetadata(data_class=1)  # DATA_CLASS_SCALAR
        self.kind.plugin_data.plugin_name = "scalars"
        self.writer = tf.summary.create_file_writer(str(Path(log_dir) / "memory"))
        self.then = 0.0
        self.highest: dict[str, int] = {}
        self.step = 0

    def note(self, step: int, in_use: int | None, peak: int | None, host: int) -> None:
        self.step = step
        for name, value in (("memory/in_use_bytes", in_use), ("memory/peak_bytes", peak), ("memory/host_bytes", host)):
            if value is not None and value > self.highest.get(name, -1):
                self.highest[name] = value
        now = time.monotonic()
        if now - self.then >= PAUSE:
            self.then = now
            self.write()

    def write(self) -> None:
        with self.writer.as_default(step=self.step):
            for name, value in self.highest.items():
                self.summary.write(name, float(value), metadata=self.kind)
        self.highest.clear()

    def close(self) -> None:
        if self.highest:
            self.write()
        self.writer.close()
