"""What the supervisor tells the script's process: one variable of the environment, taken out of it at once."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from legroom.records.run import Way

VARIABLE = "LEGROOM_RUN"


@dataclass(frozen=True, slots=True)
class Settings:
    """One attempt of a run. `way` is how its steps are to be run from the start; `resume` whether the folder holds its past."""

    folder: str
    budget_bytes: int | None = None
    ram_bytes: int | None = None
    allow: tuple[str, ...] = ()
    plan: bool = True
    every_seconds: float = 600.0
    attempt: int = 0
    resume: bool = False
    way: Way = field(default_factory=Way)

    @property
    def home(self) -> Path:
        return Path(self.folder)

    @property
    def events(self) -> Path:
        """Where the guard writes what happens, line by line."""
        return self.home / "events.jsonl"

    @property
    def crash(self) -> Path:
        """Where Python writes which line a crash was in."""
        return self.home / "crash.txt"


def to_text(settings: Settings) -> str:
    return json.dumps(asdict(settings))


def from_text(text: str) -> Settings:
    data = json.loads(text)
    return Settings(**{**data, "allow": tuple(data["allow"]), "way": Way(**data["way"])})


def taken_from_environment() -> Settings | None:
    """The settings of this process, which its own children do not inherit."""
    text = os.environ.pop(VARIABLE, None)
    return None if text is None else from_text(text)
