"""An Estimate for people: a verdict, a bar by category, the layers that hold most."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from legroom.records import Estimate, Failure, HostEstimate
from legroom.units import format_bytes

BAR_WIDTH = 48
TOP_LAYERS = 10
HOST_PARTS = 6
COLOURS = {
    "weights": "blue",
    "optimizer": "cyan",
    "gradients": "magenta",
    "activations": "yellow",
    "inputs": "green",
    "workspace": "red",
    "other": "white",
    "fragmentation": "bright_black",
    "resident": "bright_green",
    "data": "bright_cyan",
}
SAID = {
    "data": "data kept on the device",
    "other": "constants, metrics",
    "resident": "beside the program",
    "optimizer": "optimizer state",
}


def estimate_text(estimate: Estimate) -> RenderableType:
    """The whole answer, ready to print."""
    parts: list[RenderableType] = [
        verdict(estimate),
        Text(),
        category_bar(estimate),
        category_table(estimate),
        Text(),
        layer_table(estimate),
    ]
    if estimate.out_of_memory is not None:
        parts.append(shortage_text(estimate.out_of_memory))
    if estimate.first_step_peak_bytes is not None:
        size = format_bytes(estimate.first_step_peak_bytes)
        parts.append(
            Text(
                f"The first step may take up to {size}: convolutions' algorithms are tried, and leave arrays behind.",
                style="dim",
            )
        )
    elif not estimate.on_cpu and (estimate.engine, estimate.framework) != ("xla", "tensorflow"):
        parts.append(
            Text(
                "The first step may take more while it tries algorithms; that is not known without the card, and does no harm.",
                style="dim",
            )
        )
    if estimate.host is not None:
        parts += [Text(), host_text(estimate.host), host_table(estimate.host)]
        parts += [Text(f"note: {note}", style="dim") for note in estimate.host.notes]
    parts += [Text(f"note: {note}", style="dim") for note in estimate.notes]
    return Group(*parts)


def tight_text(estimate: Estimate) -> str:
    """Why it does not fit though its peak would."""
    failure, over = estimate.out_of_memory, estimate.need_bytes - estimate.usable_bytes
    if failure is not None and failure.is_sure:
        return "the free memory is torn." if failure.is_fragmentation else "what is left over is handed out whole."
    if over > 0:
        is_high = estimate.high_bytes > estimate.usable_bytes
        what = "upper bound" if is_high else "first step, with what trying algorithms may leave behind,"
        return f"its {what} is {format_bytes(over)} over."
    return "it is too close to say."


def verdict(estimate: Estimate) -> Text:
    batch = "" if estimate.batch is None else f"Batch {estimate.batch} "
    text = Text(f"{batch}needs {format_bytes(estimate.peak_bytes)} at its peak")
    text.append(f" (between {format_bytes(estimate.low_bytes)} and {format_bytes(estimate.high_bytes)})", style="dim")
    name = {"tensorflow": "TensorFlow", "jax": "JAX"}[estimate.framework]
    usable = format_bytes(estimate.usable_bytes)
    difference = estimate.usable_bytes - estimate.need_bytes
    if estimate.fits:
        text.append("\nIt fits", style="bold green")
        text.append(
            f" into the {usable} that {name} can use of {estimate.gpu}, with {format_bytes(difference)} to spare."
        )
    elif estimate.peak_bytes <= estimate.usable_bytes:
        sure = estimate.engine == "xla" and estimate.out_of_memory is not None and estimate.out_of_memory.is_sure
        text.append("\nIt does not fit" if sure else "\nIt may not fit", style="bold red" if sure else "bold yellow")
        text.append(f" into the {usable} that {name} can use of {estimate.gpu}: {tight_text(estimate)}")
    else:
        text.append("\nIt does not fit", style="bold red")
        over = estimate.peak_bytes - estimate.usable_bytes
        text.append(f" into the {usable} that {name} can use of {estimate.gpu}: {format_bytes(over)} too much.")
    if estimate.max_batch is not None:
        text.append("\nThe largest batch that fits is ")
        text.append(str(estimate.max_batch), style="bold")
        text.append("." if estimate.max_batch else ": not even one example fits.")
    return text


def shortage_text(failure: Failure) -> Text:
    """Where memory runs out, and whether it is torn or gone."""
    begin = "It"
    if failure.less_bytes:
        begin = f"With {format_bytes(failure.less_bytes)} less, which is what the simulation may be off by, it"
    elif failure.more_bytes:
        begin = f"If the card's program is larger by {format_bytes(failure.more_bytes)}, as it may be, it"
    text = Text(f"{begin} runs out at ").append(failure.asked_by, style="bold")
    text.append(
        f", which asks for {format_bytes(failure.asked_bytes)} when {format_bytes(failure.free_bytes)} are free"
    )
    if failure.is_fragmentation:
        text.append(f" in pieces of at most {format_bytes(failure.largest_free_bytes)}: fragmentation")
    return text.append(".")


def host_text(host: HostEstimate) -> Text:
    """RAM, in one line."""
    text = Text(f"The process needs {format_bytes(host.peak_bytes)} of RAM")
    text.append(f" (between {format_bytes(host.low_bytes)} and {format_bytes(host.high_bytes)})", style="dim")
    if host.peak_bytes > host.limit_bytes:
        verdict, style = "more than", "bold red"
    elif not host.fits:
        verdict, style = "perhaps more than", "bold yellow"
    else:
        verdict, style = "within", "bold green"
    text.append(", ").append(verdict, style=style)
    return text.append(f" the {format_bytes(host.limit_bytes)} of this machine ({host.limit_reason}).")


def host_table(host: HostEstimate) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for part in sorted(host.parts, key=lambda part: -part.size_bytes)[:HOST_PARTS]:
        if part.size_bytes > 0:
            table.add_row(escape(part.name), format_bytes(part.size_bytes), escape(part.why))
    return table


def category_bar(estimate: Estimate) -> Text:
    """One line in which each category has its share."""
    bar = Text()
    shown = [(name, size) for name, size in estimate.breakdown.items() if size > 0]
    for name, size in shown:
        width = round(BAR_WIDTH * size / max(1, estimate.peak_bytes))
        bar.append("█" * width, style=COLOURS.get(name, "white"))
    return bar


def category_table(estimate: Estimate) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    for name, size in sorted(estimate.breakdown.items(), key=lambda item: -item[1]):
        if size > 0:
            label = Text("■ ", style=COLOURS.get(name, "white")).append(SAID.get(name, name), style="default")
            table.add_row(label, format_bytes(size), share(size, estimate.peak_bytes))
    return table


def layer_table(estimate: Estimate) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column(f"held at the peak by layer ({min(TOP_LAYERS, len(estimate.layers))} of {len(estimate.layers)})")
    table.add_column("bytes", justify="right")
    table.add_column("share", justify="right")
    for layer in estimate.layers[:TOP_LAYERS]:
        table.add_row(escape(layer.name), format_bytes(layer.peak_bytes), share(layer.peak_bytes, estimate.peak_bytes))
    return table


def share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f}%"
