"""`legroom doctor`: what this machine has and how its memory is set up."""

import click
from rich.table import Table
from rich.text import Text

from legroom.cli.output import answers, json_option, print_json
from legroom.front.machine import examine
from legroom.units import format_bytes


@click.command()
@json_option()
def doctor(as_json: bool) -> int:
    """Say what this machine has, and what is missing. Exits 3 if something is."""
    found = examine()
    missing = [one["release"] for one in found["oracle"] if not one["installed"]]
    if as_json:
        print_json(found)
    else:
        table = Table.grid(padding=(0, 2))
        for name, value in rows(found):
            table.add_row(Text(name, style="dim"), value)
        answers().print(table)
        if missing:
            answers().print("Install the missing compilers with: legroom oracle install", style="yellow")
        if not found["frameworks"]:
            answers().print(
                "Neither TensorFlow nor JAX is installed: pip install 'legroom[tensorflow]'", style="yellow"
            )
    return 3 if missing or not found["frameworks"] else 0


def rows(found: dict[str, object]) -> list[tuple[str, str]]:
    frameworks = found["frameworks"]
    assert isinstance(frameworks, dict)
    oracle = found["oracle"]
    assert isinstance(oracle, list)
    settings = found["settings"]
    assert isinstance(settings, dict)
    releases = [f"jaxlib {one['release']} ({'installed' if one['installed'] else 'missing'})" for one in oracle]
    total, available = found["ram_total_bytes"], found["ram_available_bytes"]
    assert isinstance(total, int)
    assert isinstance(available, int)
    return [
        ("Legroom", str(found["legroom"])),
        ("Python", f"{found['python']}, {found['system']}"),
        ("Keras", str(found["keras"] or "not installed")),
        ("frameworks", ", ".join(f"{name} {version}" for name, version in frameworks.items()) or "none"),
        ("XLA compilers", ", ".join(releases) or "none needed"),
        ("GPU", str(found["gpu"] or "none here (none is needed)")),
        ("RAM", f"{format_bytes(available)} of {format_bytes(total)} free, {found['cores']} cores"),
        ("answers kept in", str(found["cache_folder"])),
        ("settings", ", ".join(f"{name}={value}" for name, value in settings.items()) or "none that change memory"),
    ]
