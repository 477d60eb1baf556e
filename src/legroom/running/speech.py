"""One line at a time on stderr."""

from rich.console import Console
from rich.text import Text


def say(message: str) -> None:
    say_line(Text("legroom: ").append(message))


def say_line(line: Text) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(line)
