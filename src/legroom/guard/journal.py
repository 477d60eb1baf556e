"""What happened, kept in memory, told to the user, and written line by line to a file that outlives the process."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from legroom.engines.out_of_memory import oom_of
from legroom.errors import InputError
from legroom.guard.room import Room
from legroom.records.rehearsal import OomFact
from legroom.records.run import Event, EventKind, Way, Where, event_to_json
from legroom.report.guard import event_line

TOLD: tuple[EventKind, ...] = ("changed", "does_not_fit", "larger", "not_ours", "not_guarded")


def say(event: Event) -> None:
    """One line on stderr."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(event_line(event))


@dataclass
class Journal:
    """The events of a run."""

    path: Path | None = None
    tell: Callable[[Event], None] | None = say
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path is not None:
            try:
                self.path.write_text("")
            except OSError as error:
                raise InputError(
                    f"The report cannot be written to {self.path}: {error.strerror}.",
                    "Give a file in a folder that can be written to.",
                ) from error

    def note(self, event: Event) -> None:
        self.events.append(event)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(event_to_json(event)) + "\n")
        if self.tell is not None and event.kind in TOLD:
            self.tell(event)


@dataclass
class Position:
    """Where a run is: steps since it began, and Keras' epoch. Who resumes one sees its batches, and lets the first ones go by."""

    step: int = 0
    epoch: int = 0
    saw: Callable[[Any], None] | None = None
    skip: int = 0

    def goes_by(self, data: Any) -> bool:
        """Whether this batch was trained on before."""
        if self.saw is not None:
            self.saw(data)
        if not self.skip:
            return False
        self.skip -= 1
        self.step += 1
        return True


@dataclass
class Witness:
    """Whoever guards a step tells it what happens; it knows when, and what the memory is like."""

    journal: Journal
    room: Room | None
    position: Position

    def event(
        self,
        kind: EventKind,
        where: Where,
        batch: int | None = None,
        fact: OomFact | None = None,
        way: Way | None = None,
    ) -> Event:
        """What happens now, not noted yet."""
        return Event(
            kind,
            where,
            self.position.step,
            self.position.epoch,
            batch,
            way or Way(),
            None if fact is None else fact.asked_bytes,
            None if self.room is None else self.room.in_use_bytes(),
            None if self.room is None else self.room.free_bytes(),
            "" if fact is None else fact.op,
            "" if fact is None else fact.message,
        )

    def note(self, event: Event) -> None:
        self.journal.note(event)

    def note_foreign(self, error: BaseException, where: Where) -> None:
        """Memory that ran out elsewhere than in a step."""
        self.note(self.event("not_ours", where, fact=oom_of(error)))
