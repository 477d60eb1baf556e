"""The one line with which `legroom.fit` says what it does, and its answer where nothing fits."""

from rich.text import Text

from legroom.records.plan import Plan, Planning
from legroom.report.plan import action_text, cost_text, exactness_text
from legroom.units import format_bytes


def planned_line(planning: Planning) -> Text:
    """What is done for this training, and why."""
    best = planning.best or planning.unchanged
    need, usable = format_bytes(planning.unchanged.high_bytes), format_bytes(planning.usable_bytes)
    if not best.actions:
        return line("it fits as it is", f": {named(planning)} needs up to {need} of {usable}; nothing is changed.")
    why = f" ({named(planning)} needs up to {need} as it is, and {usable} of {planning.gpu} can be used)."
    return line(f"training with {words(best)}", f": {price(best)}{why}")


def likely_line(planning: Planning, plan: Plan) -> Text:
    """A plan that may not fit, for a training that is guarded."""
    usable, peak = format_bytes(planning.usable_bytes), format_bytes(plan.peak_bytes)
    rest = f": {peak} of {usable} predicted, {price(plan)}. Nothing surely fits, so the guard watches."
    return line(f"training with {words(plan)}, which most likely fits", rest)


def given_line(plan: Plan, planned_batch: int | None, batch: int | None) -> Text:
    """A plan that the user has brought along."""
    if not plan.actions:
        return line("training as it is", ", as the plan says.")
    text = line(f"training with {words(plan)}", f", as planned: {price(plan)}.")
    if planned_batch is not None and batch is not None and batch > planned_batch:
        text.append(
            f" The plan was made for batch {planned_batch}; what batch {batch} takes was not estimated.", "yellow"
        )
    return text


def refusal_text(planning: Planning) -> tuple[str, str]:
    """What to say, and what to do, where no plan fits."""
    smallest = min(plan.high_bytes for plan in (*planning.plans, planning.unchanged))
    usable, need = format_bytes(planning.usable_bytes), format_bytes(planning.unchanged.high_bytes)
    message = (
        f"{named(planning).capitalize()} needs up to {need}, and {usable} of {planning.gpu} can be used. Nothing that Legroom may "
        f"change makes it fit: the smallest it found needs {format_bytes(smallest)}."
    )
    advice = [*planning.refused, *planning.advice]
    return message, "\n".join(["Take a smaller batch, more memory, or allow=(…) more.", *advice])


def line(bold: str, rest: str) -> Text:
    return Text("legroom: ").append(bold, "bold").append(rest)


def named(planning: Planning) -> str:
    return "the step" if planning.batch is None else f"batch {planning.batch}"


def words(plan: Plan) -> str:
    return ", ".join(action_text(action) for action in plan.actions)


def price(plan: Plan) -> str:
    return f"up to {format_bytes(plan.high_bytes)}, {cost_text(plan)}, {exactness_text(plan)}"
