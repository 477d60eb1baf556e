"""`legroom estimate`: predicts the peak of a training step; never trains, unless it is told to rehearse."""

import time
from dataclasses import dataclass, replace
from typing import Any

import click

from legroom.cli.options import about_a_step
from legroom.cli.output import answers, print_json, progress
from legroom.cli.rehearse import refuse_with_rehearsal, rehearse
from legroom.front.child import require_target
from legroom.front.estimating import EngineName, Estimator, require_batch
from legroom.front.hosting import has_room
from legroom.front.max_batch import find_max_batch
from legroom.front.source import ScriptSource
from legroom.front.target import choose_card
from legroom.records import Estimate
from legroom.report.text import estimate_text
from legroom.report.view import estimate_view
from legroom.units import parse_bytes

EPILOG = """\b
Examples:
  legroom estimate train.py --gpu t4
  legroom estimate train.py --gpu a100-80gb --batch 256 --max-batch
  legroom estimate train.py --budget 8GiB -- --epochs 3
  legroom estimate mymodels:build --gpu rtx4090 --json
  legroom estimate train.py --gpu mycard.toml
  legroom estimate train.py --ram 2GiB              with its data on demand
  legroom estimate train.py --rehearse --budget 2GiB
  legroom estimate train.py --rehearse --budget 2GiB --max-batch

TARGET is a training script, run up to its first training step and stopped
there, or module:function returning (compiled model, batch). What follows --
goes to the script."""


@click.command(epilog=EPILOG)
@about_a_step
@click.option("--max-batch", is_flag=True, help="Also find the largest batch that fits.")
@click.option(
    "--ram", metavar="SIZE", help="As under `legroom run --ram`: arrays read batch by batch, tf.data in so much RAM."
)
@click.option(
    "--rehearse",
    "rehearsing",
    is_flag=True,
    help="Predict nothing: really run the step on this CPU, in TensorFlow's own allocator limited to --budget.",
)
def estimate(target: str, arguments: tuple[str, ...], rehearsing: bool, as_json: bool, **chosen: Any) -> int:
    """Predict how much memory a training step takes, of a GPU (without the GPU) or of this CPU, and of the host's RAM."""
    started = time.monotonic()
    options = Options(**chosen)
    if rehearsing:
        refuse_with_rehearsal(gpu=options.gpu, engine=options.engine, ram=options.ram)
        return rehearse(target, arguments, options.budget, options.batch, max_batch=options.max_batch, as_json=as_json)
    found = answer(target, arguments, options)
    show(replace(found, seconds=time.monotonic() - started), as_json)
    return 0 if found.fits and has_room(found, options.gpu) else 1


@dataclass(frozen=True, slots=True)
class Options:
    """What can be said on the command line besides the target."""

    gpu: str | None
    budget: str | None
    batch: int | None
    max_batch: bool
    engine: EngineName
    time_limit: float
    ram: str | None


def answer(target: str, arguments: tuple[str, ...], options: Options) -> Estimate:
    card = choose_card(options.gpu, options.budget)
    require_batch(options.batch)
    require_target(target)
    with progress() as say:
        say(f"running {target} up to its first training step")
        with (
            ScriptSource(target, arguments) as source,
            Estimator(source, card, options.engine, say=say, limit=options.time_limit) as estimator,
        ):
            estimator.ram_bytes = None if options.ram is None else parse_bytes(options.ram)
            found = estimator.at(options.batch)
            return find_max_batch(estimator.at, found) if options.max_batch else found


def show(found: Estimate, as_json: bool) -> None:
    if as_json:
        print_json(estimate_view(found))
    else:
        answers().print(estimate_text(found))
