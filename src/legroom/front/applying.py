"""`legroom.plan`, `legroom.apply`, `legroom.undo`: plans for a model of this process, done to it and taken back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from legroom.changes.actions import perform
from legroom.errors import InputError
from legroom.front.estimating import EngineName, Estimator, capture_here, require_batch
from legroom.front.planning import Planner
from legroom.front.source import LocalSource
from legroom.front.target import choose_card
from legroom.records.plan import Plan, Planning
from legroom.report.plan import planning_from, planning_view

DONE = "_legroom_done"  # on a model: what was done to it


def plan(  # noqa: PLR0913
    model: Any,
    batch: Any,
    *,
    gpu: str | None = None,
    budget: str | int | None = None,
    batch_size: int | None = None,
    allow: Sequence[str] = (),
    max_batch: bool = False,
    engine: EngineName = "auto",
    jit_compile: bool | Literal["auto"] | None = None,
) -> Planning:
    """The plans that make one training step of a compiled Keras model fit, cheapest first. The model is left as it was."""
    card = choose_card(gpu, budget)
    require_batch(batch_size)
    source = LocalSource(capture_here(model, batch, jit_compile))
    with Estimator(source, card, engine) as estimator:
        return Planner(estimator, batch_size, allow).run(max_batch=max_batch)


def apply(chosen: Plan | Planning, model: Any) -> Any:
    """Do a plan (of a `Planning` the chosen one) to this model, and return the model. `legroom.undo(model)` takes it back."""
    if isinstance(chosen, Planning):
        if chosen.best is None:
            raise InputError(
                "No plan of these fits, so there is none to apply.", "Pass one of planning.plans to try it."
            )
        chosen = chosen.best
    if getattr(model, DONE, None) is not None:
        raise InputError(f"The model {model.name!r} has a plan applied already.", "legroom.undo(model) takes it back.")
    setattr(model, DONE, perform(model, chosen.actions))
    return model


def undo(model: Any) -> Any:
    """Take back what `apply` did to this model."""
    done = getattr(model, DONE, None)
    if done is None:
        raise InputError(f"Nothing is applied to the model {model.name!r}.", "legroom.apply(plan, model) comes first.")
    done.undo()
    setattr(model, DONE, None)
    return model


def save_plan(planning: Planning, path: str | Path) -> None:
    """As JSON, the same that `legroom plan --json` prints."""
    Path(path).write_text(json.dumps(planning_view(planning), indent=2) + "\n")


def load_plan(path: str | Path) -> Planning:
    """What `save_plan` or `legroom plan --json` has written."""
    try:
        return planning_from(json.loads(Path(path).read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a plan: {error}.", "Write one with `legroom plan TARGET --json`.") from error
