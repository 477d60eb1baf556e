"""Advice that was put to the test: what a plan for the user's own script says replaces what could only be guessed."""

from legroom.records.diagnosis import Advice
from legroom.records.plan import Planning
from legroom.units import format_bytes


def verified_advice(advice: tuple[Advice, ...], planning: Planning, asked: str) -> tuple[Advice, ...]:
    """The plan first, then the batch that fits, then what was advised besides. `asked` is what follows `legroom plan`."""
    unchanged, best = planning.unchanged, planning.best
    usable = format_bytes(planning.usable_bytes)
    made: list[Advice] = []
    if best is not None and not best.actions:
        made.append(
            Advice(
                "The step itself fits",
                f"Estimated: it needs up to {format_bytes(unchanged.high_bytes)} of {usable}. Something beside the step took the memory.",
                f"legroom estimate {asked}",
            )
        )
    elif best is not None:
        names = ", ".join(dict.fromkeys(action.name for action in best.actions))
        made.append(
            Advice(
                f"Apply the plan: {names}",
                f"Estimated: {format_bytes(best.peak_bytes)} instead of {format_bytes(unchanged.peak_bytes)}, {best.exactness}; {usable} can be used.",
                f'legroom plan {asked} --json > plan.json  # then legroom.fit(model, x, y, plan="plan.json")',
                max(0, unchanged.peak_bytes - best.peak_bytes),
            )
        )
    if planning.max_batch and planning.batch and planning.max_batch < planning.batch:
        made.append(
            Advice(
                f"Train with a batch of at most {planning.max_batch}",
                f"Estimated: the largest batch that fits into {usable} as it is; the script has {planning.batch}.",
                f"model.fit(..., batch_size={planning.max_batch})",
                max(0, unchanged.peak_bytes - planning.usable_bytes),
            )
        )
    if best is None:
        smallest = min((plan.peak_bytes for plan in planning.plans), default=unchanged.peak_bytes)
        made.append(
            Advice(
                "Train on a card with more memory, or change the model",
                f"Estimated: nothing that Legroom may change makes it fit into {usable}; the smallest needs {format_bytes(smallest)}.",
                f"legroom plan {asked} --advice",
            )
        )
    guessed = [each for each in advice if not each.how.startswith(("model.fit(", "legroom plan"))]
    return (*made, *guessed)
