"""`legroom.Guard`, a Keras callback. This module imports Keras: it is imported when the guard is used, never before.

Private names used, tested with Keras 3.15.1: the caller's frame in `on_train_begin`, whose `self` is the `CallbackList`.
"""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import keras

from legroom.errors import InputError
from legroom.guard.attempts import Options
from legroom.guard.installing import Installed, Notes, install
from legroom.guard.journal import Journal, Position, say
from legroom.guard.retry import ALLOWED
from legroom.records.run import Run, Way
from legroom.units import parse_bytes

HOOKS = (
    *("on_train_begin", "on_train_end", "on_train_batch_begin", "on_train_batch_end", "on_epoch_begin", "on_epoch_end"),
    *("on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end"),
    *("on_predict_begin", "on_predict_end", "on_predict_batch_begin", "on_predict_batch_end"),
)
WATCHED = "legroom_watched"  # on a list of callbacks whose errors the guard sees


class Guard(keras.callbacks.Callback):  # type: ignore[misc]
    """Training goes on where memory runs out: the failed step is taken back, and its batch taken again in less memory.

    `allow=("batchnorm-split",)` lets models with batch normalisation be trained in micro-batches. `retry_larger=100` tries
    fewer micro-batches again after so many steps. `copies=True` guards steps whose update cannot be held back, with a copy of
    weights and slots on the host. `budget` is what compiled steps may use, where that is not the whole device.
    `report="run.jsonl"` is a file for what happens, line by line. `verbose=False` says nothing.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        allow: Sequence[str] = (),
        retry_larger: int | None = None,
        copies: bool = False,
        budget: str | int | None = None,
        report: str | Path | None = None,
        verbose: bool = True,
    ) -> None:
        super().__init__()
        allowed = (allow,) if isinstance(allow, str) else tuple(allow)
        unknown = [name for name in allowed if name != ALLOWED]
        if unknown:
            raise InputError(f"A guard knows nothing to allow by the name {unknown[0]!r}.", f"It knows {ALLOWED!r}.")
        if retry_larger is not None and retry_larger < 1:
            raise InputError(f"Larger steps cannot be tried again after {retry_larger} steps.", "Give 1 or more.")
        limit = None if budget is None else parse_bytes(budget)
        self.options = Options(allowed, copies, retry_larger, limit)
        self.journal = Journal(None if report is None else Path(report), say if verbose else None)
        self.position = Position()
        self.installed: dict[str, Installed] = {}
        self.earlier: dict[str, Installed] = {}  # of the evaluations before
        self.way = Way()
        self.careful = 0
        self.start: Way | None = None  # how steps are run from the first one on

    @property
    def run(self) -> Run:
        """What happened so far."""
        now = self.installed.get("train")
        way = self.way if now is None else now.way()
        careful = self.careful + (0 if now is None else now.careful())
        return Run(self.position.step, way, careful, tuple(self.journal.events))

    def on_train_begin(self, logs: Any = None) -> None:
        self.enter("train")

    def on_train_end(self, logs: Any = None) -> None:
        self.leave("train")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.position.epoch = epoch

    def on_test_begin(self, logs: Any = None) -> None:
        self.enter("test")

    def on_test_end(self, logs: Any = None) -> None:
        self.leave("test")

    def on_predict_begin(self, logs: Any = None) -> None:
        self.enter("predict")

    def on_predict_end(self, logs: Any = None) -> None:
        self.leave("predict")

    def enter(self, what: str) -> None:
        """From now on the guard's function is called for each step."""
        self.leave(what)
        self.watch_callbacks()
        notes = Notes(self.journal, self.position, self.earlier.get(what))
        installed = install(self.model, what, notes, self.options, self.leave)
        self.installed[what] = installed
        self.earlier[what] = installed
        if what == "train" and self.start is not None:
            installed.begin(self.start)

    def leave(self, what: str | None = None) -> None:
        """Put Keras' own functions back; all of them if an error ends it."""
        for name in [what] if what is not None else list(self.installed):
            installed = self.installed.pop(name, None)
            if installed is not None:
                if name == "train":
                    self.way, self.careful = installed.way(), self.careful + installed.careful()
                installed.put_back()

    def watch_callbacks(self) -> None:
        """An error in another callback ends the guard, too; if it is of memory, it is explained."""
        found = callback_list()
        if found is not None and not getattr(found, WATCHED, False):
            setattr(found, WATCHED, True)
            for name in HOOKS:
                setattr(found, name, self.watched(getattr(found, name)))

    def watched(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(hook)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return hook(*args, **kwargs)
            except BaseException as error:
                for installed in list(self.installed.values())[-1:]:
                    installed.note_callback(error)
                self.leave()
                raise

        return call


def callback_list() -> Any:
    """The list that called the guard's hook."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, keras.callbacks.CallbackList):
            return owner
        frame = frame.f_back
    return None
