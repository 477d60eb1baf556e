"""An error of Legroom's own: what happened, and what to do, as text on stderr and as an object."""

from typing import Any

from rich.console import Console

SCHEMA = 1


def error_view(message: str, hint: str | None, exit_code: int) -> dict[str, Any]:
    return {"schema": SCHEMA, "error": {"message": message, "hint": hint, "exit_code": exit_code}}


def print_error(message: str, hint: str | None) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print("[bold red]error:[/] ", end="")
    console.print(message, markup=False)
    if hint:
        console.print(hint, markup=False, style="yellow" if console.is_terminal else "")
