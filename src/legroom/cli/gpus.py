"""`legroom gpus`: the catalogue."""

import click
from rich.table import Table

from legroom.cli.output import answers, json_option, print_json
from legroom.gpus import Gpu, catalogue, find, usable_bytes
from legroom.units import format_bytes


@click.command()
@click.argument("name", required=False)
@json_option()
def gpus(name: str | None, as_json: bool) -> int:
    """List the cards that Legroom knows, or one of them.

    \b
    Examples:
      legroom gpus
      legroom gpus t4
      legroom gpus mycard.toml --json
    """
    cards = catalogue() if name is None else (find(name),)
    if as_json:
        print_json({"schema": 1, "gpus": [card_view(card) for card in cards]})
    else:
        answers().print(card_table(cards))
    return 0


def card_view(card: Gpu) -> dict[str, object]:
    return {
        "key": card.key,
        "name": card.name,
        "aliases": list(card.aliases),
        "memory_bytes": card.memory_bytes,
        "usable_tensorflow_bytes": usable_bytes(card, "tensorflow"),
        "usable_jax_bytes": usable_bytes(card, "jax"),
        "memory_source": card.memory_source,
        "compute_capability": "{}.{}".format(*card.compute_capability),
        "bandwidth_bytes_per_second": card.bandwidth_bytes_per_second,
        "flops_per_second": dict(card.rates),
        "assumed": list(card.assumed),
    }


def card_table(cards: tuple[Gpu, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("key", "name"):
        table.add_column(title, no_wrap=True)
    for title in ("memory", "TensorFlow can use", "JAX can use", "capability"):
        table.add_column(title, justify="right", no_wrap=True)
    for card in cards:
        usable = [format_bytes(usable_bytes(card, "tensorflow")), format_bytes(usable_bytes(card, "jax"))]
        table.add_row(
            card.key, card.name, format_bytes(card.memory_bytes), *usable, "{}.{}".format(*card.compute_capability)
        )
    return table
