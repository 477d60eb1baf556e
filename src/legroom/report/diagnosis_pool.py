"""A picture of an allocator's pool when it ran out: what is held by size, the holes, and the request beside the largest of them."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from legroom.records.diagnosis import Diagnosis, Pool
from legroom.units import GIB, KIB, MIB, format_bytes

WIDTH = 60
CLASSES = (
    ("under 64 KiB", 0, "bright_black"),
    ("64 KiB to 1 MiB", 64 * KIB, "blue"),
    ("1 to 16 MiB", MIB, "cyan"),
    ("16 to 128 MiB", 16 * MIB, "green"),
    ("128 MiB to 1 GiB", 128 * MIB, "yellow"),
    ("1 GiB and more", GIB, "magenta"),
)
FREE = "░"


def pool_picture(found: Diagnosis) -> RenderableType | None:
    """None where the log has no numbers to draw."""
    pool = found.pool or Pool(found.limit_bytes, found.in_use_bytes)
    if not pool.limit_bytes or pool.in_use_bytes is None:
        return None
    parts: list[RenderableType] = [pool_bar(pool), class_table(pool)]
    if found.failed_bytes is not None:
        parts += [Text(), beside(found)]
    return Group(*parts)


def by_class(pool: Pool) -> list[tuple[str, str, int, int]]:
    """(name, colour, bytes, pieces) of each class of sizes that holds something."""
    found = []
    for place, (name, low, colour) in enumerate(CLASSES):
        high = CLASSES[place + 1][1] if place + 1 < len(CLASSES) else 2**64
        inside = [(size, count) for size, count in pool.held if low <= size < high]
        if inside:
            found.append((name, colour, sum(size * count for size, count in inside), sum(count for _, count in inside)))
    return found


def pool_bar(pool: Pool) -> Text:
    """One line: the held classes in their colours, then what is free."""
    limit = pool.limit_bytes or 1
    bar, drawn = Text(), 0
    classes = by_class(pool) or [("", "yellow", pool.in_use_bytes or 0, 0)]
    for _, colour, size, _ in classes:
        width = min(WIDTH - drawn, round(WIDTH * size / limit))
        bar.append("█" * width, style=colour)
        drawn += width
    return bar.append(FREE * (WIDTH - drawn), style="bright_black")


def class_table(pool: Pool) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    for name, colour, size, pieces in by_class(pool):
        table.add_row(
            Text("■ ", style=colour).append(f"held, {name}", style="default"), format_bytes(size), f"{pieces} pieces"
        )
    if pool.free_bytes is not None:
        holes = f"{len(pool.holes)} holes" if pool.holes else ""
        table.add_row(Text(f"{FREE} free"), format_bytes(pool.free_bytes), holes)
    return table


def beside(found: Diagnosis) -> Table:
    """The request, the largest hole and all that is free, drawn to one scale."""
    rows = [
        ("asked for", found.failed_bytes, "red"),
        ("largest hole", found.largest_free_bytes, "green"),
        ("free in all", found.free_bytes, "bright_black"),
    ]
    known = [(name, size, colour) for name, size, colour in rows if size is not None]
    most = max((size for _, size, _ in known), default=0) or 1
    table = Table.grid(padding=(0, 2))
    for name, size, colour in known:
        width = max(1 if size else 0, round(WIDTH * size / most))
        table.add_row(name, Text("█" * width, style=colour), format_bytes(size))
    return table
