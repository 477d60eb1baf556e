"""What `legroom estimate` and `legroom plan` are both told: the target, the card, the batch, the engine."""

from collections.abc import Callable
from typing import Any

import click

from legroom.cli.output import json_option

SHARED = (
    click.argument("target"),
    click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
    click.option("--gpu", metavar="NAME", help="The card to train on (`legroom gpus`), or a TOML file describing one."),
    click.option("--budget", metavar="SIZE", help="How much of it may be used, e.g. 8GiB."),
    click.option("--batch", type=int, metavar="N", help="Another batch size than the script's."),
    click.option(
        "--engine",
        type=click.Choice(["auto", "xla", "op"]),
        default="auto",
        help="What the step takes compiled (xla) or op by op (op), however it really runs.",
    ),
    click.option(
        "--time-limit", type=float, default=900.0, metavar="SECONDS", show_default=True, help="For each compilation."
    ),
    json_option(),
)


def about_a_step(command: Callable[..., Any]) -> Callable[..., Any]:
    """The shared arguments and options, for a command about one training step."""
    for part in reversed(SHARED):
        command = part(command)
    return command
