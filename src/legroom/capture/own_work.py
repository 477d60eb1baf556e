"""What Legroom does itself while a script is watched: it is not taken for the script's training.

A step that Legroom runs in slices announces itself, so that it is captured whole and not by the tape of its first slice.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

Announce = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]  # a function, and what it is called with


class OwnWork(threading.local):
    """Whether Legroom is at work in this thread, and whether a step is recorded on a device of its own, which reads zeros."""

    on = False
    recording = False


class Watchers:
    """Who wants to know of steps that run in slices."""

    announce: ClassVar[list[Announce]] = []


own_work = OwnWork()


@contextmanager
def at_work() -> Iterator[None]:
    before, own_work.on = own_work.on, True
    try:
        yield
    finally:
        own_work.on = before


@contextmanager
def recorded() -> Iterator[None]:
    before, own_work.recording = own_work.recording, True
    try:
        yield
    finally:
        own_work.recording = before


def announce(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Called before an eager step runs in slices. A watcher that captures it does not return."""
    if not own_work.on:
        for tell in Watchers.announce:
            tell(function, args, kwargs)
