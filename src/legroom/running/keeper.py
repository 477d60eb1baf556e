"""The callback that keeps a `fit`'s state on disk and resumes it. Imported when a script trains, never before.

A state is everything that training changes: weights, statistics, seeds, slots, metrics, the generators of random numbers, what
other callbacks remember, the history. It is kept at the end of each epoch, and inside an epoch every few minutes. To resume inside
an epoch, its first batches are taken from the data again and let go; only if they are the same batches, does training go on there.

Private names used, tested with Keras 3.15.1: `Trainer._initial_epoch` (as Keras' BackupAndRestore uses it).
"""

import copy
import os
import time
from collections.abc import Callable
from typing import Any, NoReturn

import keras

from legroom.data.keras_stream import stream_of_fit
from legroom.guard.callback import Guard
from legroom.running import chance, order
from legroom.running.arrays import array_of
from legroom.running.store import AGAIN, BEGIN_AGAIN, State, Store
from legroom.running.untrained import begun

PLAIN = (bool, int, float, str, type(None))
LATE = ("min_delta",)  # Keras' monitors turn its sign themselves, at the end of their first epoch
Tell = Callable[[str], None]


class Keeper(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps and resumes the fit of this number; `guard` sees its batches."""

    def __init__(self, store: Store, number: int, guard: Guard, every_seconds: float, tell: Tell) -> None:
        super().__init__()
        self.store, self.number, self.guard, self.tell = store, number, guard, tell
        self.every_seconds = every_seconds
        self.resume = False
        self.first = 0  # the epoch that the script begins with
        self.others: list[Any] = []
        self.kept_at = time.monotonic()
        self.epoch = self.seen = self.print = self.steps = 0
        self.stream: Any = None  # where the data are a `legroom.stream`
        self.begun_at: Any = None  # and where it stood when the epoch began
        self.waiting: State | None = None  # to be taken up when the batches before it have gone by
        self.broken = False
        self.past: dict[str, Any] | None = None  # what Keras' History held
        self.finished = False
        self.chance: Any = None  # the generators of random numbers when the epoch began

    # what Keras calls

    def on_train_begin(self, logs: Any = None) -> None:
        begun(self.store.folder)
        self.guard.position.saw = self.saw
        self.stream = stream_of_fit()
        self.begun = [plain_of(other) for other in self.others]
        state = self.last_state() if self.resume else None
        if state is None:
            return
        self.past = state.facts["history"]
        self.finished = bool(state.facts["done"])
        self.epoch = int(state.facts["epoch"])
        iterator = order.epoch_iterator()
        if self.stream is not None and state.facts["stream"] is not None:
            self.stream.restore(state.facts["stream"])
        elif iterator is not None and not state.facts["done"]:
            order.go_through(iterator, self.epoch - self.first)
        self.model._initial_epoch = self.epoch
        if state.facts["step"]:
            self.waiting = state
            self.guard.position.skip = int(state.facts["step"])
        self.take_up(state)
        if self.waiting is not None:
            chance.put_back(state.facts["chance_at_epoch"])  # its order is drawn again first

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch, self.seen, self.print, self.steps = epoch, 0, 0, 0
        self.begun_at = None if self.stream is None else self.stream.state()
        self.remember()
        self.chance = chance.kept() if self.waiting is None else self.waiting.facts["chance_at_epoch"]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps = batch + 1
        if self.waiting is not None:
            if not self.seen:  # the guard does not see the batches this time
                self.begin_again()
            if self.seen >= self.waiting.facts["step"]:
                self.arrive(self.waiting)
            return
        if time.monotonic() - self.kept_at >= self.every_seconds and self.seen > batch:
            self.keep("midway", self.epoch, self.seen)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.keep("epoch", epoch + 1, 0, logs)

    def on_train_end(self, logs: Any = None) -> None:
        self.guard.position.saw = None
        self.model._initial_epoch = None
        self.remember()
        if not self.finished:
            self.keep("done", self.epoch + 1, 0)

    # ours

    def saw(self, data: Any) -> None:
        """A batch on its way to the step."""
        self.seen += 1
        self.print = order.print_of(data, self.print)

    def arrive(self, state: State) -> None:
        """All batches before the state have gone by."""
        self.waiting = None
        if self.print != state.facts["print"]:
            self.begin_again()
        self.take_up(state)

    def begin_again(self) -> NoReturn:
        """What was kept inside the epoch is of no use: the supervisor starts the script once more."""
        self.store.drop(self.number, "midway")
        self.tell("the data come in another order than before, so this epoch is begun again.")
        (self.store.folder / AGAIN).touch()
        os._exit(BEGIN_AGAIN)

    def last_state(self) -> State | None:
        for kind in ("done", "midway", "epoch"):
            state = self.store.read(self.number, kind)
            if state is not None:
                if describe(variables_of(self.model)) == state.facts["variables"]:
                    return state
                self.tell("the model is not the one that was kept: it is trained from its beginning.")
                return None
        return None

    def keep(self, kind: Any, epoch: int, step: int, logs: Any = None) -> None:
        """Write the state down; a disk that is full is said once, and training goes on."""
        self.kept_at = time.monotonic()
        variables = variables_of(self.model)
        facts = {
            "epoch": epoch, "step": step, "print": self.print, "done": kind == "done", "time": time.time(),
            "variables": describe(variables), "chance": chance.kept(), "chance_at_epoch": self.chance,
            "stream": self.stream_state(kind),
            "history": self.history_with(epoch - 1, logs) if kind == "epoch" else self.history_with(None, None),
            "others": [] if kind == "done" else [memory_of(*pair) for pair in zip(self.others, self.begun, strict=True)],
        }  # fmt: skip
        arrays = [array_of(variable) for variable in variables]
        for entry in facts["others"]:
            entry["arrays"] = {name: add(arrays, found) for name, found in entry["arrays"].items()}
        try:
            self.store.write(self.number, kind, State(facts, arrays))
        except OSError as error:
            if not self.broken:
                self.tell(
                    f"the state could not be kept ({error.strerror}): if the script is killed, it begins earlier."
                )
            self.broken = True

    def stream_state(self, kind: str) -> Any:
        """Where a stream stands: at the beginning of the epoch that is resumed."""
        if self.stream is None or self.begun_at is None:
            return None
        return self.begun_at if kind == "midway" else self.stream.after(self.begun_at, self.steps)

    def history_with(self, epoch: int | None, logs: Any) -> dict[str, Any]:
        """What Keras' History holds, with an epoch that it has not been told of yet."""
        found = getattr(self.model, "history", None)
        history = {name: list(map(number, values)) for name, values in found.history.items()} if found else {}
        epochs = list(found.epoch) if found else []
        if epoch is not None:
            epochs.append(epoch)
            for name, value in (logs or {}).items():
                history.setdefault(name, []).append(number(value))
        return {"history": history, "epoch": epochs}

    def remember(self) -> None:
        """Keras' History begins anew after this callback has begun: it is filled as soon as it has."""
        past, self.past = self.past, None
        history = getattr(self.model, "history", None)
        if past is not None and history is not None:
            history.history, history.epoch = copy.deepcopy(past["history"]), list(past["epoch"])

    def take_up(self, state: State) -> None:
        """The state as it was."""
        variables = variables_of(self.model)
        for variable, array in zip(variables, state.arrays, strict=False):
            variable.assign(array)
        for other, entry in zip(self.others, state.facts["others"], strict=False):
            if type(other).__name__ == entry["class"]:
                for name, value in entry["plain"].items():
                    setattr(other, name, value)
                for name, places in entry["arrays"].items():
                    setattr(other, name, [state.arrays[place] for place in places])
        chance.put_back(state.facts["chance"])
        self.kept_at = time.monotonic()


def variables_of(model: Any) -> list[Any]:
    """Everything that training changes, each once, in the same order in each process."""
    optimizer = getattr(model, "optimizer", None)
    generator = chance.keras_generator()
    found = [*model.variables, *model.metrics_variables, *(optimizer.variables if optimizer is not None else [])]
    found += [] if generator is None else [generator]
    return list({id(variable): variable for variable in found}.values())


def describe(variables: list[Any]) -> list[str]:
    return [f"{variable.name} {tuple(variable.shape)} {variable.dtype}" for variable in variables]


def plain_of(callback: Any) -> dict[str, Any]:
    """What a callback remembers in plain values and in lists of arrays."""
    found = {name: value for name, value in vars(callback).items() if not name.startswith("_") and is_kept(value)}
    return {name: value for name, value in found.items() if name not in LATE}


def is_kept(value: Any) -> bool:
    import numpy as np

    arrays = isinstance(value, list) and bool(value) and all(isinstance(part, np.ndarray) for part in value)
    return isinstance(value, (*PLAIN, np.number)) or arrays


def memory_of(callback: Any, begun: dict[str, Any]) -> dict[str, Any]:
    """What has changed in a callback since the training began."""
    now = {name: value for name, value in plain_of(callback).items() if begun.get(name, plain_of) is not value}
    return {
        "class": type(callback).__name__,
        "plain": {name: number(value) for name, value in now.items() if not isinstance(value, list)},
        "arrays": {name: value for name, value in now.items() if isinstance(value, list)},
    }


def add(arrays: list[Any], found: list[Any]) -> list[int]:
    """Put them behind the others; where they are."""
    start = len(arrays)
    arrays.extend(found)
    return list(range(start, len(arrays)))


def number(value: Any) -> Any:
    """A number of NumPy's or TensorFlow's as Python's own."""
    return value if isinstance(value, PLAIN) else float(value)
