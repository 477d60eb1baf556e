"""The plan of a fit under `legroom run`: made in the script's own process before the first step, and used again after a restart."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from legroom.capture.fingerprint import fingerprint
from legroom.errors import DoesNotFit, LegroomError
from legroom.front.applying import DONE, apply, load_plan, save_plan, undo
from legroom.front.fitting import captured_fit, look_at, observed_only, plan_of_step
from legroom.front.target import choose_card
from legroom.records.plan import Plan, Planning
from legroom.report.fit_line import likely_line, planned_line, refusal_text
from legroom.running.settings import Settings
from legroom.running.speech import say, say_line

DEAR = 1.5  # times as long as the step takes as it is


@dataclass(frozen=True)
class Training:
    """A call of `fit` or of `train_on_batch`, and the how many-th training of its process it is."""

    model: Any
    verb: str
    arguments: dict[str, Any]
    number: int


def find_plan(training: Training, settings: Settings, known: dict[str, Plan]) -> Plan | None:
    """What is to be done to its model; None where nothing is known of the memory, or the script has planned itself."""
    card = choose_card(None, settings.budget_bytes)
    if (card.is_cpu and settings.budget_bytes is None) or getattr(training.model, DONE, None) is not None:
        return None
    path = settings.home / f"plan-{training.number}.json"
    if settings.resume and path.exists():
        with suppress(LegroomError):
            kept = load_plan(path)
            return kept.best or likeliest(kept)
    seen, training.arguments["x"] = look_at(training.arguments.get("x"))
    looked_at = {**training.arguments, "x": seen}
    step = captured_fit(training.model, looked_at, training.verb)
    key = fingerprint(step)
    if key is None or key not in known:
        say("planning for the memory there is…")
        observed = observed_only(step, looked_at) if training.verb == "fit" else None  # else one batch, which is there
        planning = plan_of_step(step, card, settings.allow, observed)
        plan = told(planning)
        with suppress(OSError):
            save_plan(planning, path)
        if key is None:
            return plan
        known[key] = plan
    return known[key]


def find_function_plan(function: Any, args: Any, kwargs: Any, settings: Settings) -> Plan | None:
    """The same for a step that the script wrote itself."""
    from legroom.capture.tf_step import capture_call

    card = choose_card(None, settings.budget_bytes)
    if card.is_cpu and settings.budget_bytes is None:
        return None
    step = capture_call(function, args, kwargs)
    if step is None:
        return None
    say("planning for the memory there is…")
    return told(plan_of_step(step, card, settings.allow))


def told(planning: Planning) -> Plan:
    """The plan to take; where none surely fits, the one that most likely does: what it lacks, the guard finds out."""
    plan = planning.best or likeliest(planning)
    if plan is None:
        raise DoesNotFit(*refusal_text(planning))
    say_line(planned_line(planning) if plan is planning.best else likely_line(planning, plan))
    return plan


def likeliest(planning: Planning) -> Plan | None:
    """The quickest whose predicted peak fits. A dear one is not taken: the guard may find that less will do."""
    within = [plan for plan in planning.plans if plan.actions and plan.peak_bytes <= planning.usable_bytes]
    cheap = [plan for plan in within if plan.slowdown is not None and plan.slowdown <= DEAR]
    return min(cheap, key=lambda plan: plan.slowdown or 0.0, default=None)


@contextmanager
def with_plan(model: Any, plan: Plan | None) -> Iterator[None]:
    """The model with this plan, put back whatever happens."""
    if plan is None or not plan.actions:
        yield
        return
    apply(plan, model)
    try:
        yield
    finally:
        undo(model)
