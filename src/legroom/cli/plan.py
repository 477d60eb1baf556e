"""`legroom plan`: the cheapest change that makes a training step fit."""

from dataclasses import replace
from typing import Any

import click

from legroom.cli.options import about_a_step
from legroom.cli.output import answers, print_json, progress
from legroom.front.child import require_target
from legroom.front.estimating import Estimator, require_batch
from legroom.front.host_plan import host_plan, may_fit
from legroom.front.planning import ALLOWED, Planner, require_allowed
from legroom.front.source import ScriptSource
from legroom.front.target import choose_card
from legroom.report.plan import planning_text
from legroom.report.plan_json import planning_view
from legroom.units import parse_bytes

EPILOG = """\b
Examples:
  legroom plan train.py --gpu t4
  legroom plan train.py --budget 8GiB --json
  legroom plan train.py --gpu t4 --allow mixed-precision
  legroom plan train.py --gpu t4 --no-max-batch     only the plans: quicker
  legroom plan train.py --gpu t4 --advice           what to change about the model
  legroom plan train.py --ram 4GiB                  what to do where RAM runs out
  legroom plan train.py --gpu t4 --json > plan.json

\b
Then, in the script:
  legroom.fit(model, x, y, batch_size=256, plan="plan.json")   instead of model.fit
  legroom.apply(legroom.load_plan("plan.json"), model)         or for good
A plan knows the model that it was made for, and refuses another.

Nothing is trained and nothing is changed: every plan that is shown was done to
the script's model in a process of its own, and estimated there."""


@click.command(epilog=EPILOG)
@about_a_step
@click.option("--allow", metavar="NAMES", default="", help=f"What may change what is learned: {', '.join(ALLOWED)}.")
@click.option(
    "--max-batch/--no-max-batch",
    default=True,
    show_default=True,
    help="Also find the largest batch, as it is and with the plan.",
)
@click.option(
    "--advice",
    is_flag=True,
    help="Also estimate changes to the model itself, up to three (without asking: if no plan fits).",
)
@click.option("--ram", metavar="SIZE", help="The RAM of the machine that trains; without it, this one's limit.")
def plan(target: str, arguments: tuple[str, ...], as_json: bool, **chosen: Any) -> int:
    """Find the cheapest change that makes a training step fit, and say what it costs and whether it is exact."""
    card = choose_card(chosen["gpu"], chosen["budget"])
    allow = require_allowed([name.strip() for name in chosen["allow"].split(",") if name.strip()])
    ram_bytes = None if chosen["ram"] is None else parse_bytes(chosen["ram"])
    require_batch(chosen["batch"])
    require_target(target)
    with progress() as say:
        say(f"running {target} up to its first training step")
        with (
            ScriptSource(target, arguments) as source,
            Estimator(source, card, chosen["engine"], say=say, limit=chosen["time_limit"]) as estimator,
        ):
            planner = Planner(estimator, chosen["batch"], allow, say=say)
            found = planner.run(max_batch=chosen["max_batch"], advice=chosen["advice"])
            if planner.plain is not None:
                found = replace(found, host=host_plan(estimator, planner.plain, ram_bytes, chosen["gpu"]))
    if as_json:
        print_json(planning_view(found))
    else:
        answers().print(planning_text(found))
    return 0 if found.chosen is not None and may_fit(found.host) else 1
