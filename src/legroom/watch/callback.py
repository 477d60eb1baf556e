"""`legroom.Monitor`, a Keras callback. This module imports Keras: it is imported when the monitor is used, never before.

A step is sampled when the next one begins: that hook runs on the training thread, while Keras hands `on_train_batch_end` to
another one (`async_safe`), so that a monitor does not make training wait for the values of its logs.
"""

from pathlib import Path
from typing import Any, Self

import keras

from legroom.watch.findings import Finding, Sample
from legroom.watch.watching import Watch


class Monitor(keras.callbacks.Callback):  # type: ignore[misc]
    """Device and host memory while a model trains: in the progress bar, in files, and a word when it grows and why.

    `file="memory.jsonl"` takes a line for each step, `log_dir` is for TensorBoard, `leaks=False` only samples. Also for loops:
    `with legroom.Monitor() as monitor:` and `monitor.step()` after each step.
    """

    async_safe = True

    def __init__(
        self,
        *,
        file: str | Path | None = None,
        log_dir: str | Path | None = None,
        leaks: bool = True,
        verbose: bool = True,
    ) -> None:
        super().__init__()
        self.watch = Watch(file=file, log_dir=log_dir, leaks=leaks, verbose=verbose)
        self.under_way = False

    def __enter__(self) -> Self:
        self.watch.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.watch.stop()

    def step(self) -> None:
        """A step of a custom loop has ended."""
        self.watch.step()

    @property
    def findings(self) -> list[Finding]:
        return self.watch.findings

    @property
    def leak(self) -> Finding | None:
        return self.watch.leak

    @property
    def sample(self) -> Sample:
        return self.watch.sample

    def on_train_begin(self, logs: Any = None) -> None:
        known = self.params or {}
        steps, epochs = known.get("steps"), known.get("epochs")
        self.watch.planned = steps * epochs if steps and epochs else None
        self.under_way = False
        self.watch.start()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.under_way:
            self.watch.step()
        self.under_way = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if logs is not None and self.watch.steps:
            logs.update(self.watch.logs())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.end_step()
        if logs is not None:
            logs.update(self.watch.logs())

    def on_train_end(self, logs: Any = None) -> None:
        self.end_step()
        self.watch.stop()

    def end_step(self) -> None:
        """The last step of an epoch, which no other follows."""
        if self.under_way:
            self.watch.step()
        self.under_way = False
