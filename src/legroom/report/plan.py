"""A Planning for people: the plans that fit, what each costs, and which one to take."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from legroom.records.plan import Action, Plan, Planning
from legroom.report.host_plan import host_parts
from legroom.units import format_bytes

SHOWN_NAMES = 3
PLAIN_WORDS = {"dropout": "dropout masks drawn again", "host_data": "the data kept in RAM"}


def planning_text(planning: Planning) -> RenderableType:
    """The whole answer, ready to print."""
    parts: list[RenderableType] = [verdict(planning), Text(), plan_table(planning)]
    best = planning.best
    if best is not None:
        parts += [Text(f"not exact: {reason}", style="yellow") for reason in best.reasons]
        parts += [Text(tried_text(best), style="dim")] if best.tried else []
    parts += largest_batches(planning)
    parts += host_parts(planning.host)
    parts += [Text(f"advice: {advice}") for advice in planning.advice]
    parts += [Text(f"not possible: {reason}", style="dim") for reason in planning.refused]
    parts += [Text(f"note: {note}", style="dim") for note in planning.notes]
    return Group(*parts)


def exactness_text(plan: Plan) -> str:
    return f"{plan.exactness} as far as was tried" if plan.tried else plan.exactness


def tried_text(plan: Plan) -> str:
    """What of it rests on trials."""
    more = f" and {len(plan.tried) - SHOWN_NAMES} more" if len(plan.tried) > SHOWN_NAMES else ""
    names = ", ".join(plan.tried[:SHOWN_NAMES])
    return f"tried: {names}{more}, not Keras' own, gave the same in slices as whole on made-up samples; how sure that is: docs/plan.md"


def largest_batches(planning: Planning) -> list[RenderableType]:
    if planning.max_batch is None:
        return []
    text = f"\nThe largest batch that fits as it is: {planning.max_batch}"
    best, planned = planning.best, planning.max_batch_planned
    return [Text(text + (f"; with this plan: {planned}." if best and best.actions and planned else "."))]


def verdict(planning: Planning) -> Text:
    need, usable = format_bytes(planning.unchanged.high_bytes), format_bytes(planning.usable_bytes)
    batch = "The step" if planning.batch is None else f"Batch {planning.batch}"
    text = Text(f"{batch} needs up to {need} as it is; {usable} of {planning.gpu} can be used.\n")
    best = planning.best
    if best is None:
        smallest = min((plan.high_bytes for plan in planning.plans), default=planning.unchanged.high_bytes)
        text.append("Nothing that Legroom may change makes it fit", style="bold red")
        text.append(f": the smallest it found needs {format_bytes(smallest)}.")
    elif not best.actions:
        text.append("It fits as it is", style="bold green")
        text.append("; nothing needs to change.")
    else:
        words = ", ".join(action_text(action) for action in best.actions)
        text.append(f"It fits with {words}", style="bold green")
        text.append(f": up to {format_bytes(best.high_bytes)}, {cost_text(best)}, {exactness_text(best)}.")
    return text


def plan_table(planning: Planning) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("plan", "peak", "at most", "time", "exact"):
        table.add_column(name, justify="left" if name in ("plan", "exact") else "right")
    listed = [*planning.plans] if planning.unchanged in planning.plans else [*planning.plans, planning.unchanged]
    for number, plan in enumerate(listed):
        words = ", ".join(action_text(action) for action in plan.actions) or "as it is"
        style = "bold" if number == planning.chosen else "" if plan.fits else "dim"
        table.add_row(
            *(words, format_bytes(plan.peak_bytes), format_bytes(plan.high_bytes)),
            *(
                "?" if plan.slowdown is None else f"× {plan.slowdown:.2f}",
                plan.exactness if plan.fits else "does not fit",
            ),
            style=style,
        )
    return table


def cost_text(plan: Plan) -> str:
    if plan.slowdown is None:
        return "its time not known"
    return "at no cost in time" if plan.slowdown < 1.005 else f"{plan.slowdown - 1:.0%} slower"


def action_text(action: Action) -> str:
    """An action as a user would say it."""
    if action.name == "microbatch":
        return f"{action['count']} micro-batches in each step"
    if action.name == "remat":
        layers = [name for block in action["blocks"] for name in block]
        shown = ", ".join(layers[:SHOWN_NAMES]) + (", …" if len(layers) > SHOWN_NAMES else "")
        return f"{len(layers)} layers recomputed ({shown})"
    if action.name == "compile":
        return "the step compiled by XLA" if action["jit_compile"] else "the step run op by op (jit_compile=False)"
    if action.name == "xla_memory":
        return f"XLA held to {format_bytes(action['limit_bytes'])} of temporaries (XLA_FLAGS={action['flag']})"
    if action.name == "allocator":
        return f"CUDA's own pool of memory, which does not tear ({action['setting']})"
    if action.name == "pool":
        return f"a larger pool of memory, {format_bytes(action['usable_bytes'])} ({action['setting']})"
    if action.name == "optimizer":
        return f"the optimizer {action['kind']}"
    if action.name == "mixed_precision":
        return str(action["policy"])
    return PLAIN_WORDS.get(action.name, action.name)
