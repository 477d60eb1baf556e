"""`legroom.fit`: `model.fit` with the cheapest plan that makes it fit, for as long as it trains."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import GeneratorType
from typing import Any

from rich.console import Console

from legroom.changes.drawn import nothing_drawn
from legroom.errors import DoesNotFit, InputError
from legroom.front.applying import apply, load_plan, require_unplanned, undo
from legroom.front.decorating import chosen_plan
from legroom.front.estimating import Estimator
from legroom.front.local_source import LocalSource
from legroom.front.planning import Planner
from legroom.front.target import Card, choose_card
from legroom.records.plan import Plan, Planning
from legroom.report.fit_line import given_line, planned_line, refusal_text
from legroom.units import parse_bytes

WATCHED = "legroom_watched"  # on a `fit` that a watched script calls: see capture/hooks.py


def fit(  # noqa: PLR0913
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    gpu: str | None = None,
    budget: str | int | None = None,
    allow: Sequence[str] = (),
    plan: Plan | Planning | str | Path | None = None,
    guard: Any = False,
    ram: str | int | None = None,
    **fit_arguments: Any,
) -> Any:
    """`model.fit(x, y, **fit_arguments)`, planned for this GPU (or for `gpu`, `budget`) where it would not fit as it is.

    A `plan` that was made before, or the file that it was saved to, is taken as it is. One line says what is done, unless
    verbose=0. The model is put back afterwards, whatever happens. Returns Keras' History; its `legroom_plan` is the Plan.
    With `guard` (True, or a `legroom.Guard`), steps that run out of memory all the same are taken again in less (`legroom.Guard`); what happened is in
    `legroom_run`. Without a GPU and a budget, it is then guarded and not planned.
    With `ram="2GiB"`, arrays are read batch by batch instead of being copied whole, in the same order, and tf.data pipelines have
    that budget of RAM (docs/data.md). Without a GPU and a budget, it is then not planned either.
    """
    require_unplanned(model)
    if ram is not None:
        wanted = {"gpu": gpu, "budget": budget, "allow": allow, "plan": plan, "guard": guard}
        return streamed_fit(model, parse_bytes(ram), wanted, {"x": x, "y": y, **fit_arguments})
    if guard:
        wanted = {"gpu": gpu, "budget": budget, "allow": allow, "plan": plan}
        return guarded_fit(model, guard, wanted, {"x": x, "y": y, **fit_arguments})
    if plan is None and getattr(
        getattr(model, "fit", None), WATCHED, False
    ):  # by `legroom estimate`: its question is the step as it is
        return model.fit(x, y, **fit_arguments)
    seen, x = look_at(x)
    arguments = {"x": seen, "y": y, **fit_arguments}
    if plan is None:
        card = require_memory(gpu, budget)
        planning = plan_for(captured_fit(model, arguments), card, allow, arguments)
        chosen, line = chosen_or_refused(planning), planned_line(planning)
    else:
        given = load_plan(plan) if isinstance(plan, str | Path) else plan
        chosen, step = chosen_plan(given), captured_fit(model, arguments).built().step
        line = given_line(chosen, given.batch if isinstance(given, Planning) else None, step.batch)
    if fit_arguments.get("verbose") != 0:
        Console(stderr=True, highlight=False, soft_wrap=True).print(line)
    history = trained(model, chosen, {"x": x, "y": y, **fit_arguments})
    history.legroom_plan = chosen
    return history


def streamed_fit(model: Any, ram_bytes: int, wanted: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """The same fit with its data on demand."""
    from legroom.data.failures import failures_told
    from legroom.data.unmodified import streamed

    unplanned = wanted["plan"] is None and wanted["budget"] is None and choose_card(wanted["gpu"], None).is_cpu
    with streamed(ram_bytes, verbose=arguments.get("verbose") != 0), failures_told(arguments["x"]):
        if unplanned and not wanted["guard"]:
            return model.fit(**with_batches_first(arguments))
        return fit(model, **wanted, **arguments)


def with_batches_first(arguments: dict[str, Any]) -> dict[str, Any]:
    """A stream's batch is taken before its step begins: TensorFlow counts a step whose batch cannot be read as done."""
    from legroom.data.stream import Stream
    from legroom.guard.callback import Guard

    if not isinstance(arguments["x"], Stream):
        return arguments
    given = arguments.get("callbacks") or []
    return {**arguments, "callbacks": [Guard(verbose=False), *(given if isinstance(given, list | tuple) else [given])]}


def guarded_fit(model: Any, guard: Any, wanted: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """The same fit with a guard among its callbacks."""
    from legroom.guard.callback import Guard
    from legroom.guard.retry import ALLOWED

    if not isinstance(guard, Guard):
        allow = (wanted["allow"],) if isinstance(wanted["allow"], str) else wanted["allow"]
        allowed = [name for name in allow if name == ALLOWED]
        guard = Guard(allow=allowed, budget=wanted["budget"], verbose=arguments.get("verbose") != 0)
    given = arguments.get("callbacks") or []
    arguments = {**arguments, "callbacks": [guard, *(given if isinstance(given, list | tuple) else [given])]}
    if wanted["plan"] is None and choose_card(wanted["gpu"], wanted["budget"]).is_cpu and wanted["budget"] is None:
        history = model.fit(**arguments)
    else:
        history = fit(model, **wanted, **arguments)
    history.legroom_run = guard.run
    return history


def trained(model: Any, chosen: Plan, arguments: dict[str, Any]) -> Any:
    """Fit with the plan done, and take it back."""
    if not chosen.actions:
        return model.fit(**arguments)
    apply(chosen, model)
    try:
        return model.fit(**arguments)
    finally:
        undo(model)


def require_memory(gpu: str | None, budget: str | int | None) -> Card:
    """The card to train on; without one, a CPU has as much as the user says."""
    card = choose_card(gpu, budget)
    if card.is_cpu and budget is None:
        raise InputError(
            "Legroom sees no GPU here, and was not told how much memory there is to fit into.",
            'Pass gpu="t4" (`legroom gpus` lists them) or budget="8GiB".',
        )
    return card


def captured_fit(model: Any, arguments: dict[str, Any], source: str = "fit") -> Any:
    """`source`: the method that was called, `fit` or `train_on_batch`."""
    from legroom.capture.keras_fit import capture_fit

    return capture_fit(model, arguments, source, getattr(model, "_legroom_jit", None))


def plan_for(captured: Any, card: Card, allow: Sequence[str], arguments: dict[str, Any]) -> Planning:
    return plan_of_step(captured, card, allow, observed_only(captured, arguments))


def plan_of_step(captured: Any, card: Card, allow: Sequence[str], observed: Any = None) -> Planning:
    """Plans for a captured step of this process, Keras' or the user's own, which trains on with them."""
    source = LocalSource(captured)
    source.observed = observed
    allowed = (allow,) if isinstance(allow, str) else allow
    with nothing_drawn(), Estimator(source, card) as estimator:
        return Planner(estimator, None, allowed, anew=False).run(max_batch=False)


def observed_only(captured: Any, arguments: dict[str, Any]) -> Any:
    """The process with its data, of which no element is made: training is to see all of them, in their order."""
    from legroom.engines.host.describe import describe
    from legroom.engines.host.observe import observe

    data = describe(**{**arguments, "may_sample": False})
    return replace(observe(replace(captured, given=None)), data=data)


def chosen_or_refused(planning: Planning) -> Plan:
    if planning.best is None:
        raise DoesNotFit(*refusal_text(planning))
    return planning.best


def look_at(x: Any) -> tuple[Any, Any]:
    """Data to look at and data to train on: a generator gives each batch once, so its first one is put back."""
    if not isinstance(x, GeneratorType):
        return x, x
    first = list(islice(x, 1))

    def again() -> Iterator[Any]:
        yield from first
        first.clear()
        yield from x

    return iter(list(first)), again()
