"""The plan's half about RAM for people: whether it is enough, and what would take some off."""

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from legroom.records.host import HostPlan
from legroom.units import format_bytes

WHO = {"legroom": "Legroom", "author": "you"}


def host_parts(plan: HostPlan | None) -> list[RenderableType]:
    """Nothing is said where RAM is enough."""
    if plan is None or plan.fits is not False or plan.limit_bytes is None:
        return []
    text = Text(f"\nThe process needs {format_bytes(plan.peak_bytes)} of RAM, up to {format_bytes(plan.high_bytes)}; ")
    text.append(f"there are {format_bytes(plan.limit_bytes)}", style="bold red").append(f" ({plan.limit_reason}).")
    if not plan.actions:
        return [text.append(" Nothing about its data would take some off.")]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("RAM with", "peak", "at most", "by", "how"):
        table.add_column(name, justify="right" if name in ("peak", "at most") else "left")
    for action in plan.actions:
        sizes = (format_bytes(action.peak_bytes), format_bytes(action.high_bytes))
        style = "" if action.fits else "dim"
        table.add_row(escape(action.title), *sizes, WHO[action.by], escape(action.how), style=style)
    return [text, table]
