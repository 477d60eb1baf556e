"""The run that this process is an attempt of, if `legroom run` has started it."""

from dataclasses import dataclass
from typing import Any, ClassVar

from legroom.running.settings import Settings
from legroom.running.store import Store


@dataclass(frozen=True, slots=True)
class CurrentRun:
    settings: Settings
    store: Store
    fits: Any  # who numbers the trainings of this process

    def next_number(self) -> int:
        number: int = self.fits.count
        self.fits.count += 1
        return number


class Here:
    """This process's run."""

    run: ClassVar[CurrentRun | None] = None


def current() -> CurrentRun | None:
    return Here.run
