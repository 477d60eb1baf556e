"""`legroom.Watch`: memory of a training loop, step by step.

with legroom.Watch(file="memory.jsonl") as watch:
    for batch in data:
        train(batch)
        watch.step()
"""

import sys
import time
from pathlib import Path
from typing import Any, Self

from legroom.errors import InputError
from legroom.units import MIB
from legroom.watch.counters import Counter, find_counter, resident_bytes
from legroom.watch.findings import Finding, Memory, Sample, finding_text, finding_to_json
from legroom.watch.growth import Trend
from legroom.watch.journal import Lines
from legroom.watch.suspicion import Suspicion
from legroom.watch.tensorboard import Board


class Watch:
    """Samples device and host memory after each step, writes them down, and says when and why they grow.

    `file` is where a line of JSON goes for each step, `log_dir` a folder for TensorBoard. `leaks=False` only samples.
    `steps` is how many there will be, if known. `verbose=False` says nothing; `findings` has what was found.
    """

    def __init__(
        self,
        *,
        file: str | Path | None = None,
        log_dir: str | Path | None = None,
        leaks: bool = True,
        steps: int | None = None,
        verbose: bool = True,
    ) -> None:
        if steps is not None and steps < 1:
            raise InputError(f"A run cannot have {steps} steps.", "Give 1 or more, or leave it out.")
        self.path = None if file is None else Path(file)
        self.log_dir, self.leaks, self.planned, self.verbose = log_dir, leaks, steps, verbose
        self.findings: list[Finding] = []
        self.steps, self.peak = 0, 0
        self.in_use: int | None = None
        self.step_peak: int | None = None
        self.host = 0
        self.counter: Counter | None = None
        self.lines: Lines | None = None
        self.board: Board | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Open the files and find the counters; a second start goes on where the first ended."""
        if self.counter is not None:
            return
        if self.lines is None and self.path is not None:
            self.lines = Lines(self.path, again=self.steps > 0)
        self.board = None if self.log_dir is None else Board(self.log_dir)
        self.resident = resident_bytes()
        self.counter = find_counter()
        self.counter.read()  # what was the peak before is none of ours
        self.device_trend, self.host_trend = Trend(), Trend()
        trends: dict[Memory, Trend] = {"device": self.device_trend, "host": self.host_trend}
        self.suspicion = Suspicion(trends)

    def step(self) -> None:
        """A step has ended."""
        if self.counter is None:
            self.start()
            assert self.counter is not None
        self.steps += 1
        in_use, peak = self.counter.read()
        self.in_use, self.step_peak, self.host = in_use, peak, self.resident()
        if peak is not None and peak > self.peak:
            self.peak = peak
        if self.lines is not None:
            self.lines.sample(self.steps, time.time(), in_use, peak, self.host)
        if self.board is not None:
            self.board.note(self.steps, in_use, peak, self.host)
        if self.leaks:
            if in_use is not None:
                self.device_trend.add(in_use)
            if self.host_trend.add(self.host):
                self.look()

    def look(self) -> None:
        """A window is full."""
        found = self.suspicion.examine(self.steps)
        if found is None or any(old.cause == found.cause for old in self.findings):
            return
        if self.planned is not None and found.is_leak:
            to_come = round(found.growth.slope_bytes * max(self.planned - self.steps, 0))
            found = Finding(found.step, found.memory, found.growth, found.cause, to_come)
        self.findings.append(found)
        if self.lines is not None:
            self.lines.event(finding_to_json(found))
        if self.verbose:
            sys.stderr.write(f"\n{finding_text(found)}\n")

    @property
    def sample(self) -> Sample:
        """Memory after the last step."""
        return Sample(self.steps, self.in_use, self.step_peak, self.host)

    @property
    def leak(self) -> Finding | None:
        """The first leak, if there was one."""
        return next((found for found in self.findings if found.is_leak), None)

    def logs(self) -> dict[str, float]:
        """What a progress bar shows: the peak so far, or the host's memory where the device's is not counted."""
        if not self.peak:
            return {"host_mib": round(self.host / MIB, 1)}
        return {"peak_mib": round(self.peak / MIB, 1)}

    def stop(self) -> None:
        """Close the files and put everything back."""
        if self.counter is None:
            return
        self.suspicion.drop(0)
        self.counter = None
        if self.lines is not None:
            self.lines.close()
            self.lines = None
        if self.board is not None:
            self.board.close()
            self.board = None
