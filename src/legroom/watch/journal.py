"""A line of JSON for each sample, handed to the kernel at once: it outlives the process, however that ends.

Only steps that follow each other within 20 ms are written together, and their lines may be lost with the process.
"""

import json
import os
from pathlib import Path
from typing import Any

from legroom.errors import InputError

PAUSE = 0.02  # seconds between two writes


class Lines:
    """A file that is only ever written whole lines. `again` goes on with one that is there."""

    def __init__(self, path: Path, again: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self.file = os.open(path, flags if again else flags | os.O_TRUNC, 0o644)
        except OSError as error:
            raise InputError(
                f"The samples cannot be written to {path}: {error.strerror}.",
                "Give a file in a folder that can be written to.",
            ) from error
        self.waiting: list[str] = []
        self.then = 0.0

    def sample(self, step: int, time: float, in_use: int | None, peak: int | None, host: int) -> None:
        self.waiting.append(
            f'{{"schema": 1, "step": {step}, "time": {time:.3f}, "in_use_bytes": {"null" if in_use is None else in_use}, '
            f'"peak_bytes": {"null" if peak is None else peak}, "host_bytes": {host}}}\n'
        )
        if not self.then <= time < self.then + PAUSE:
            self.then = time
            self.flush()

    def flush(self) -> None:
        if self.waiting:
            os.write(self.file, "".join(self.waiting).encode())
            self.waiting.clear()

    def event(self, data: dict[str, Any]) -> None:
        self.flush()
        os.write(self.file, (json.dumps({"schema": 1, **data}) + "\n").encode())

    def close(self) -> None:
        self.flush()
        os.close(self.file)
