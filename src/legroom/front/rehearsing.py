"""Rehearsing: one training step really run on this CPU, in a process of its own, under TensorFlow's allocator with a limit.

What `legroom estimate --rehearse` and `legroom.rehearse()` call. The process is thrown away, and so is all that it trained.
"""

import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from legroom.capture.limited import is_rehearsal, limited_environment
from legroom.engines.host.limits import read_limits
from legroom.engines.out_of_memory import crash_clues, read_log, signal_name
from legroom.engines.rehearsal import require_tensorflow
from legroom.errors import EngineError, InputError, LegroomError
from legroom.front.estimating import require_batch
from legroom.front.rehearsed_batches import find_largest
from legroom.front.source import Say, ScriptSource, be_silent
from legroom.records.rehearsal import OomFact, Rehearsal, oom_from_json, rehearsal_from_json
from legroom.units import GIB, MIB, format_bytes, parse_bytes

STEPS = 3  # the first makes what later ones reuse; two more show whether they agree
MARGIN_BYTES = GIB  # for Python, TensorFlow's code and the script's own arrays, which are not under the limit
LOG_TAIL = 30
TENSORFLOW_LINE = re.compile(r"^(WARNING: All log messages|\d{4}-\d\d-\d\d [\d:.]+: [IWEF] |[IWEF]\d{4} [\d:.]+)")


@dataclass(frozen=True, slots=True)
class Room:
    """The limit of a rehearsal, in whole MiB, and what is to be said of it."""

    limit_bytes: int
    notes: tuple[str, ...] = ()


class RanOut(LegroomError):
    """The child ran out of memory before it could answer."""

    def __init__(self, fact: OomFact) -> None:
        super().__init__(fact.message)
        self.fact = fact


class RehearsalSource(ScriptSource):
    """A script held at its first training step, in a process whose TensorFlow has a limit. Its stderr is kept in a file."""

    def __init__(
        self, target: str, arguments: Sequence[str], room: Room, environment: Mapping[str, str], log: IO[bytes]
    ) -> None:
        self.room = room
        self.asked = False
        self.log = log
        variables = {**limited_environment(room.limit_bytes), **environment}
        super().__init__(target, arguments, environment=variables, log=log)

    def rehearse(self, batch: int | None, steps: int) -> Rehearsal:
        self.asked = True
        return rehearsal_from_json(self.ask({"do": "rehearse", "batch": batch, "steps": steps})["rehearsal"])

    def failed(self, answer: dict[str, Any]) -> LegroomError:
        if answer["out_of_memory"] is not None:
            return RanOut(replace(oom_from_json(answer["out_of_memory"]), during=self.during))
        if not self.asked:
            self.show_log()
        return super().failed(answer)

    def ended(self, code: int) -> LegroomError:
        if code >= 0:
            self.show_log()
            return super().ended(code)
        name = signal_name(-code)
        if name == "SIGKILL":
            message = "The process was killed (SIGKILL), as the system does when the machine's own memory has run out."
            return RanOut(OomFact("", None, "", None, message, self.during, signal=name))
        fact = read_log(self.read_log())
        if fact is not None:
            message = f"{fact.message} It could not raise an error: the process crashed ({name})."
            return RanOut(replace(fact, message=message, during=self.during, signal=name))
        doing = "in the training step" if self.asked else "while the script made its model or data"
        clues = "".join(f"\n  {clue}" for clue in crash_clues(self.read_log()))
        return EngineError(
            f"The process crashed ({name}) {doing}, and nothing in its log says that the {format_bytes(self.room.limit_bytes)} "
            f"it was given had run out.{clues}",
            "Rehearse it with more: if it still crashes, memory is not the cause.",
        )

    @property
    def during(self) -> Any:
        return "step" if self.asked else "building"

    def read_log(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def show_log(self) -> None:
        """What the script itself had to say, when memory is not the matter."""
        lines = [line for line in self.read_log().splitlines() if not TENSORFLOW_LINE.match(line)]
        for line in lines[-LOG_TAIL:]:
            print(line, file=sys.stderr)


def find_room(limit: str | int | None) -> Room:
    """The limit that was asked for; without one, what this machine has left but for a margin."""
    import psutil

    machine = read_limits().tightest
    if limit is None:
        left = min(machine.limit_bytes, int(psutil.virtual_memory().available))
        size = max(left - MARGIN_BYTES, left // 2)
        return Room(size // MIB * MIB, (f"No limit was given: it is what is free of {machine.reason}, less a margin.",))
    size = parse_bytes(limit)
    if size < MIB:
        raise InputError(
            f"TensorFlow's allocator is limited in whole MiB; received {limit!r}.", "Give it 1MiB or more, e.g. 2GiB."
        )
    size = min(size, 2**60) // MIB * MIB
    if size <= machine.limit_bytes:
        return Room(size)
    note = (
        f"The limit is more than this process can have ({format_bytes(machine.limit_bytes)}: {machine.reason}); past that it is "
        "killed before it reaches the limit."
    )
    return Room(size, (note,))


def rehearse_target(  # noqa: PLR0913
    target: str,
    arguments: Sequence[str] = (),
    *,
    limit: str | int | None = None,
    batch: int | None = None,
    max_batch: bool = False,
    environment: Mapping[str, str] | None = None,
    say: Say = be_silent,
) -> Rehearsal:
    """Run the script or `module:function` up to its first training step, then that step for real; or the largest batch's."""
    if is_rehearsal():
        raise InputError(
            "This process is a rehearsal already, and its script asks for another one.",
            'Put the call of legroom.rehearse under `if __name__ == "__main__":`, in another file than what it rehearses.',
        )
    room = find_room(limit)
    require_batch(batch)
    started = time.monotonic()

    def run(size: int | None, limit_bytes: int, steps: int) -> Rehearsal:
        return run_once(
            (target, arguments, environment or {}), replace(room, limit_bytes=limit_bytes), (size, steps), say
        )

    if not max_batch:
        found = run(batch, room.limit_bytes, STEPS)
    else:
        begun = batch

        def run_from(size: int | None, limit_bytes: int, steps: int) -> Rehearsal:
            return run(begun if size is None else size, limit_bytes, steps)

        found = find_largest(run_from, room.limit_bytes, find_room(None).limit_bytes, STEPS)
    return replace(found, seconds=time.monotonic() - started)


def run_once(
    what: tuple[str, Sequence[str], Mapping[str, str]], room: Room, wanted: tuple[int | None, int], say: Say
) -> Rehearsal:
    """One child, one batch, so many steps."""
    (target, arguments, environment), (batch, steps) = what, wanted
    say(f"running {target} up to its first training step, with {format_bytes(room.limit_bytes)}")
    found = Rehearsal(batch, "graph", room.limit_bytes)
    try:
        with (
            tempfile.TemporaryFile() as log,
            RehearsalSource(target, arguments, room, environment, log) as source,
        ):
            step = source.step
            require_tensorflow(step)
            batch = step.batch if batch is None else batch
            found = replace(found, batch=batch, execution="eager" if step.execution == "eager" else "graph")
            say(f"running {steps} steps of batch {batch} on this CPU (out of memory, TensorFlow waits for 10 seconds)")
            found = source.rehearse(batch, steps)
    except RanOut as error:
        found = replace(found, out_of_memory=error.fact)
    return replace(found, notes=(*room.notes, *found.notes))


def rehearse(
    step: Any,
    batch: Any = None,
    *,
    limit: str | int | None = None,
    batch_size: int | None = None,
    max_batch: bool = False,
) -> Rehearsal:
    """Really run a training step on this CPU, in a process of its own, and tell its true peak or its true out-of-memory error.

    `step` is a training script ("train.py"), "module:function", a module-level function returning (compiled model, batch), or a
    compiled Keras model with one `batch` of its data (only shapes are read). `limit` is what TensorFlow may use, e.g. "2GiB";
    without it, what this machine has. `batch_size` asks for another size than the batch has; `max_batch` for the largest that fits
    into `limit`, to 1%, found in several processes, some of which run out of memory. Nothing that is trained is kept.
    """
    from legroom.front.rehearsed import named_step
    from legroom.front.saved_model import saved_model

    if isinstance(step, str) or (callable(step) and not hasattr(step, "train_step")):
        if batch is not None:
            raise InputError(
                "A batch goes with a model only: a script or a function has its own.",
                "Its size is changed by batch_size=32.",
            )
        target, environment = named_step(step)
        return rehearse_target(target, limit=limit, batch=batch_size, max_batch=max_batch, environment=environment)
    with saved_model(step, batch) as (target, environment):
        return rehearse_target(target, limit=limit, batch=batch_size, max_batch=max_batch, environment=environment)
