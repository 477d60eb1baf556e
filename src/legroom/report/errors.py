"""An error of Legroom's own on stderr: what happened, and what to do."""

from rich.console import Console


def print_error(message: str, hint: str | None) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print("[bold red]error:[/] ", end="")
    console.print(message, markup=False)
    if hint:
        console.print(hint, markup=False, style="yellow" if console.is_terminal else "")
