"""`legroom.Checkpoint`: the state of a training loop of one's own on disk, and the way back into it.

Private names used, tested with Keras 3.15.1: those of `chance`.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from legroom.errors import InputError
from legroom.running import chance, order
from legroom.running.arrays import array_of
from legroom.running.current import current
from legroom.running.speech import say
from legroom.running.store import Kind, State, Store
from legroom.units import parse_duration


class Checkpoint:
    """Keeps everything that a loop changes, at the end of each epoch and every few minutes inside one, and resumes it.

        keep = legroom.Checkpoint(model, optimizer, loss_metric, folder="states")
        for epoch in keep.epochs(10):
            for x, y in keep.batches(dataset):
                train_step(x, y)

    Give all that training changes: models, optimizers, metrics, variables. `keep.values` is a dictionary of plain values that is
    kept, too. Under `legroom run` states lie in the run's own folder, and `folder` may be left out. A script that is started
    again goes on where the last state was kept; when the loop has ended, its states are removed.
    """

    def __init__(self, *objects: Any, folder: str | Path | None = None, every: str | float | None = None) -> None:
        self.objects = objects
        run = current()
        if not objects:
            raise InputError(
                "There is nothing to keep.",
                "Pass what training changes: legroom.Checkpoint(model, optimizer, folder='states').",
            )
        if run is None and folder is None:
            raise InputError(
                "A checkpoint needs a folder.", "Pass folder='states', or start the script with `legroom run`."
            )
        self.under_run = run if folder is None else None
        self.store = Store(Path(folder)) if folder is not None else run.store  # type: ignore[union-attr]
        given = 600.0 if run is None else run.settings.every_seconds
        self.every_seconds = given if every is None else parse_duration(every)
        self.values: dict[str, Any] = {}
        self.number = 0
        self.first = self.epoch = self.step = self.print = 0
        self.resumed: State | None = None  # taken up, and its epoch not yet gone on with
        self.kept_at = time.monotonic()
        self.broken = False
        self.kept: list[Any] | None = None
        self.stream: Any = None
        self.begun_at: Any = None  # where the stream stood when its batches were asked for,
        self.done_before = 0  # after so many of them
        self.chance: Any = None  # the generators of random numbers when the epoch began

    def epochs(self, count: int, first: int = 0) -> Iterator[int]:
        """The numbers of the epochs that are to be trained: all from `first` to `count`, or those that are left."""
        self.number = self.under_run.next_number() if self.under_run is not None else 0
        self.make_folder()
        self.kept = None
        self.first = start = first
        state = self.last_state()
        if state is not None:
            start = int(state.facts["epoch"])
            self.resumed = state
            self.take_up(state)
            if not state.facts["done"]:
                step = f", step {state.facts['step']}" if state.facts["step"] else ""
                say(f"the loop goes on at epoch {start + 1}{step}.")
        for self.epoch in range(start, count):
            self.step = self.print = 0
            self.stream = self.begun_at = None
            if self.resumed is None or not self.resumed.facts["step"]:
                self.chance = chance.kept()
            yield self.epoch
            self.resumed = None
            self.keep("epoch", self.epoch + 1)
        if state is None or not state.facts["done"]:
            self.end(count)

    def batches(self, data: Iterable[Any]) -> Iterator[Any]:
        """The batches of one epoch; of an epoch that is resumed, those that are left."""
        from legroom.data.stream import Stream

        state, self.resumed = self.resumed, None
        past = 0
        if isinstance(data, Stream):
            self.stream = data
            if state is not None and state.facts["stream"] is not None:
                data.restore(state.facts["stream"])
                self.step = int(state.facts["step"])
            self.begun_at = data.state()
            self.done_before = self.step
        elif state is not None:
            go_to_epoch(data, int(state.facts["epoch"]) - self.first)
            past = int(state.facts["step"])
        if past and state is not None:
            chance.put_back(state.facts["chance_at_epoch"])
            self.chance = state.facts["chance_at_epoch"]
        rest = iter(data)
        if past and state is not None:
            rest = self.go_past(state, rest, data)
        for batch in rest:
            if self.stream is None:
                self.print = order.print_of(batch, self.print)
            yield batch
            self.step += 1
            if time.monotonic() - self.kept_at >= self.every_seconds:
                self.keep("midway", self.epoch)

    def go_past(self, state: State, batches: Iterator[Any], data: Iterable[Any]) -> Iterator[Any]:
        """The batches behind the state; all of them, from the epoch's beginning, if they are not the ones that were used."""
        for _ in range(int(state.facts["step"])):
            with suppress(StopIteration):
                self.print = order.print_of(next(batches), self.print)
        self.step = int(state.facts["step"])
        if self.print == state.facts["print"]:
            chance.put_back(state.facts["chance"])
            return batches
        begun = self.store.read(self.number, "epoch")
        if begun is None:
            raise InputError(
                "The data come in another order than before, and nothing was kept of this epoch's beginning.",
                f"Remove {self.store.path(self.number, 'midway')} to begin again.",
            )
        say("the data come in another order than before, so this epoch is begun again.")
        self.store.drop(self.number, "midway")
        self.take_up(begun)
        self.step = self.print = 0
        return iter(data)

    # on disk

    def keep(self, kind: Kind, epoch: int) -> None:
        """Write the state down; a disk that is full is said once, and training goes on."""
        self.kept_at = time.monotonic()
        variables = self.variables()
        stream = None
        if self.stream is not None:
            midway = kind == "midway"
            stream = self.stream.after(self.begun_at, self.step - self.done_before) if midway else self.stream.state()
        facts = {
            "epoch": epoch, "step": self.step if kind == "midway" else 0, "print": self.print, "done": kind == "done",
            "time": time.time(), "variables": described(variables), "stream": stream, "values": self.values,
            "chance": chance.kept(), "chance_at_epoch": self.chance,
        }  # fmt: skip
        try:
            self.store.write(self.number, kind, State(facts, [array_of(variable) for variable in variables]))
        except OSError as error:
            if not self.broken:
                say(f"the state could not be kept ({error.strerror}): if the script is killed, it begins earlier.")
            self.broken = True
        except TypeError as error:
            raise InputError(
                f"The values of a checkpoint must be plain, for JSON: {error}.",
                "Keep numbers, texts and lists of them.",
            ) from None

    def end(self, count: int) -> None:
        """Under `legroom run` a finished loop is not repeated; else nothing of it is needed any more."""
        if self.under_run is not None:
            self.keep("done", count)
            return
        for kind in ("epoch", "midway"):
            self.store.drop(self.number, kind)
        with suppress(OSError):
            self.store.folder.rmdir()

    def make_folder(self) -> None:
        try:
            self.store.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"States cannot be kept in {self.store.folder}: {error.strerror}.", "Name another folder."
            ) from error

    def last_state(self) -> State | None:
        """What an earlier process has kept, if it was of this loop; else the beginning is kept."""
        if self.under_run is None or self.under_run.settings.resume:
            for kind in ("done", "midway", "epoch"):
                state = self.store.read(self.number, kind)
                if state is not None:
                    found, wanted = described(self.variables()), state.facts["variables"]
                    if found != wanted:
                        raise InputError(
                            f"What was kept in {self.store.folder} is of other variables: {difference(found, wanted)}.",
                            "Build everything before epochs() begins, or remove the folder to begin again.",
                        )
                    return state
        self.chance = chance.kept()
        self.keep("epoch", self.first)
        return None

    def take_up(self, state: State) -> None:
        for variable, array in zip(self.variables(), state.arrays, strict=True):
            variable.assign(array)
        self.values.clear()
        self.values.update(state.facts["values"])
        chance.put_back(state.facts["chance"])
        self.kept_at = time.monotonic()

    def variables(self) -> list[Any]:
        """Everything that training changes, as it was when epochs() began: metrics that Keras makes later begin anew anyway."""
        if self.kept is None:
            self.kept = self.all_variables()
        return self.kept

    def all_variables(self) -> list[Any]:
        """Each once, in the same order in each process."""
        import keras

        parts = list(flat(self.objects))
        models = [part for part in parts if isinstance(part, keras.Model)]
        for part in parts:
            if isinstance(part, keras.Layer) and not part.built:
                raise InputError(
                    f"The model {part.name!r} has no weights yet.",
                    "Build it before epochs() begins: call it on a batch, or give it an Input.",
                )
            if isinstance(part, keras.optimizers.Optimizer) and not part.built:
                if len(models) != 1:
                    raise InputError(
                        "An optimizer has no slots yet, and there is not just one model that they could be for.",
                        "Build it before epochs() begins: optimizer.build(model.trainable_variables).",
                    )
                part.build(models[0].trainable_variables)
        generator = chance.keras_generator()
        found = [variable for part in parts for variable in variables_in(part)]
        found += [] if generator is None else [generator]
        return list({id(variable): variable for variable in found}.values())


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from flat(part)
    elif value is not None:
        yield value


def variables_in(part: Any) -> list[Any]:
    """Those of a model, optimizer, metric or tf.Module; a variable is its own."""
    if hasattr(part, "assign") and hasattr(part, "shape"):
        return [part]
    found = getattr(part, "variables", None)
    if not isinstance(found, list | tuple):
        raise InputError(
            f"A checkpoint cannot keep a {type(part).__name__}.", "Give it models, optimizers, metrics and variables."
        )
    return [*found, *getattr(part, "metrics_variables", ())]


def described(variables: list[Any]) -> list[str]:
    return [f"{plain_name(variable)} {tuple(variable.shape)} {dtype_name(variable)}" for variable in variables]


def plain_name(variable: Any) -> str:
    return str(getattr(variable, "name", ""))


def dtype_name(variable: Any) -> str:
    dtype = variable.dtype
    return str(getattr(dtype, "name", dtype))


def difference(found: list[str], wanted: list[str]) -> str:
    if len(found) != len(wanted):
        return f"there are {len(found)} now, and there were {len(wanted)}"
    return next(f"{new} now, {old} then" for new, old in zip(found, wanted, strict=True) if new != old)


def go_to_epoch(data: Any, epochs: int) -> None:
    """Bring a tf.data shuffle to where it was: making the iterators of the epochs before is enough."""
    import sys

    tf: Any = sys.modules.get("tensorflow")
    if tf is not None and isinstance(data, tf.data.Dataset):
        for _ in range(epochs):
            iter(data)
