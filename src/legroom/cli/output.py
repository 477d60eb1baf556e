"""Where the front door prints: answers on stdout, progress and errors on stderr. NO_COLOR is respected by rich."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from legroom.front.source import Say


def answers() -> Console:
    """Where the answer goes; lines are as long as they are when nobody sits there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def print_json(view: Any) -> None:
    sys.stdout.write(json.dumps(view, indent=2) + "\n")


@contextmanager
def progress() -> Iterator[Say]:
    """A line on stderr that says what is going on, while there is somebody to read it."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda text: bar.update(task, description=text)
