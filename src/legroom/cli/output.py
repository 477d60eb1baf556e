"""Where the front door prints: answers on stdout, progress and errors on stderr. NO_COLOR is respected by rich."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from legroom.front.source import Say


def answers() -> Console:
    """Where the answer goes; lines are as long as they are when nobody sits there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def print_json(view: Any) -> None:
    sys.stdout.write(json.dumps(view, indent=2) + "\n")


def json_option(text: str = "One JSON object on stdout.") -> Callable[..., Any]:
    """`--json`, remembered for an error that comes later: that is told as an object, too."""

    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
        if isinstance(context.obj, set) and value:
            context.obj.add(parameter.name)
        return value

    return click.option("--json", "as_json", is_flag=True, callback=remember, help=text)


@contextmanager
def progress() -> Iterator[Say]:
    """A line on stderr that says what is going on, while there is somebody to read it."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda text: bar.update(task, description=text)
