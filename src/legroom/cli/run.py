"""`legroom run`: the unmodified script, planned, guarded, and resumed where it is killed."""

import os
import sys
from pathlib import Path

import click

from legroom.cli.output import json_option, print_json
from legroom.errors import InputError
from legroom.front.planning import ALLOWED, require_allowed
from legroom.front.target import gpu_of_this_machine
from legroom.running.budget import budget_environment
from legroom.running.folder import clear, run_folder
from legroom.running.settings import Settings
from legroom.running.supervisor import Supervisor, command_for
from legroom.running.view import run_view
from legroom.units import MIB, parse_bytes, parse_duration

EPILOG = """\b
Examples:
  legroom run train.py                          guarded, and resumed if it is killed
  legroom run --budget 1GiB train.py            in 1 GiB, and no more
  legroom run --ram 2GiB train.py               arrays without the copies that Keras makes
  legroom run train.py --epochs 3 --lr 1e-3     what follows the script is the script's
  legroom run -m package.train --epochs 3       as python -m
  legroom run --checkpoint-every 5min train.py  how much is lost at most inside an epoch
  legroom run --resume train.py                 go on after the machine itself has failed

The script's output, its input, its exit code and its signals are its own.
States are kept in .legroom/ while it runs, and removed when it has ended well."""


@click.command(
    epilog=EPILOG,
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--budget", metavar="SIZE", help="How much device memory it may use, e.g. 8GiB: planned for, and made a real limit."
)
@click.option(
    "--ram", metavar="SIZE", help="Read arrays batch by batch instead of copying them, and give tf.data so much RAM."
)
@click.option("--allow", metavar="NAMES", default="", help=f"What may change what is learned: {', '.join(ALLOWED)}.")
@click.option(
    "--plan/--no-plan", default=True, show_default=True, help="Plan before training (where the memory is known)."
)
@click.option(
    "--restarts",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    metavar="N",
    help="How often it is started again at most.",
)
@click.option(
    "--checkpoint-every",
    "every",
    default="10min",
    show_default=True,
    metavar="TIME",
    help="Inside an epoch; besides, at the end of each.",
)
@click.option("--checkpoints", metavar="FOLDER", help="Where states are kept.  [default: .legroom/SCRIPT]")
@click.option("--resume", is_flag=True, help="Go on from the states that an earlier run has left.")
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module, as for python -m.")
@json_option("One JSON object on stdout when it has ended; the script's own output goes to stderr.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(  # noqa: PLR0913
    script: str,
    arguments: tuple[str, ...],
    *,
    budget: str | None,
    ram: str | None,
    allow: str,
    plan: bool,
    restarts: int,
    every: str,
    checkpoints: str | None,
    resume: bool,
    module: bool,
    as_json: bool,
) -> int:
    """Run a training script as it is: with the cheapest plan that fits, steps that survive running out of memory, and resumed where it is killed."""
    if not module:
        require_script(script)
    allowed = require_allowed([name.strip() for name in allow.split(",") if name.strip()])
    budget_bytes = require_budget(budget)
    gpu = gpu_of_this_machine() if budget_bytes is not None else None
    with run_folder(script, checkpoints, resume=resume) as folder:
        settings = Settings(
            str(folder),
            budget_bytes,
            ram_bytes=None if ram is None else parse_bytes(ram),
            allow=tuple(allowed),
            plan=plan,
            every_seconds=parse_duration(every),
            resume=resume,
        )
        command = command_for(script, arguments, module=module)
        environment = budget_environment(budget_bytes, gpu, os.environ)
        output = sys.stderr if as_json else None
        supervisor = Supervisor(command, settings, restarts, environment, output)
        code = supervisor.run()
        if as_json:
            print_json(run_view(code, supervisor))
        if code == 0:
            clear(folder)
    return code


def require_script(script: str) -> None:
    path = Path(script)
    if path.is_dir():
        raise InputError(f"{script} is a folder.", "Name the training script in it, e.g. train.py.")
    if not path.is_file():
        raise InputError(f"There is no script {script!r}.", "Name a training script; -m names a module.")


def require_budget(budget: str | None) -> int | None:
    if budget is None:
        return None
    size = parse_bytes(budget)
    if size < MIB:
        raise InputError(f"A budget is limited in whole MiB; received {budget!r}.", "Give it 1MiB or more, e.g. 2GiB.")
    return size // MIB * MIB
