"""`legroom.plan`, `legroom.apply`, `legroom.undo`: plans for a model of this process, done to it and taken back."""

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from legroom.changes.actions import missing_settings, perform
from legroom.changes.drawn import nothing_drawn
from legroom.errors import InputError
from legroom.front.decorating import chosen_plan
from legroom.front.estimating import EngineName, Estimator, capture_here, require_batch
from legroom.front.local_source import LocalSource
from legroom.front.matching import actions_for
from legroom.front.planning import Planner
from legroom.front.target import choose_card
from legroom.records.plan import Plan, Planning
from legroom.report.plan_json import planning_from, planning_view

DONE = "_legroom_done"  # on a model: what was done to it


def plan(  # noqa: PLR0913
    model: Any,
    batch: Any,
    *,
    gpu: str | None = None,
    budget: str | int | None = None,
    batch_size: int | None = None,
    allow: str | Sequence[str] = (),
    max_batch: bool = False,
    advice: bool = False,
    engine: EngineName = "auto",
    jit_compile: bool | Literal["auto"] | None = None,
) -> Planning:
    """The plans that make one training step of a compiled Keras model fit, cheapest first. The model is left as it was.

    With `max_batch`, also the largest batches as it is and with the plan; with `advice` (and where nothing fits), what could
    be changed about the model itself.
    """
    card = choose_card(gpu, budget)
    require_batch(batch_size)
    source = LocalSource(capture_here(model, batch, jit_compile))
    with nothing_drawn(), Estimator(source, card, engine) as estimator:
        return Planner(estimator, batch_size, allow).run(max_batch=max_batch, advice=advice)


def apply(chosen: Plan | Planning, model: Any, *, force: bool = False) -> Any:
    """Do a plan (of a `Planning` the chosen one) to this model, and return the model. `legroom.undo(model)` takes it back.

    A plan that was made for a model of another structure is refused; `force` does it all the same, if it can be done.
    """
    found = chosen_plan(chosen)
    if not hasattr(model, "_flatten_layers"):
        raise InputError(f"Expected a keras.Model to apply a plan to, received a {type(model).__name__}.")
    require_unplanned(model)
    actions = actions_for(found, model, force=force)
    with nothing_drawn():
        setattr(model, DONE, perform(model, actions))
    for missing in missing_settings(actions, os.environ):
        warnings.warn(missing, stacklevel=2)
    return model


def require_unplanned(model: Any) -> None:
    if getattr(model, DONE, None) is not None:
        raise InputError(f"The model {model.name!r} has a plan applied already.", "legroom.undo(model) takes it back.")


def undo(model: Any) -> Any:
    """Take back what `apply` did to this model."""
    done = getattr(model, DONE, None)
    if done is None:
        name = getattr(model, "name", type(model).__name__)
        raise InputError(f"Nothing is applied to the model {name!r}.", "legroom.apply(plan, model) comes first.")
    done.undo()
    setattr(model, DONE, None)
    return model


def save_plan(planning: Planning, path: str | Path) -> None:
    """As JSON, the same that `legroom plan --json` prints."""
    if not isinstance(planning, Planning):
        raise InputError(
            f"Expected what legroom.plan returns, received a {type(planning).__name__}.",
            "Save the planning, not one plan of it.",
        )
    try:
        Path(path).write_text(json.dumps(planning_view(planning), indent=2) + "\n")
    except OSError as error:
        raise InputError(
            f"The plan cannot be written to {path}: {error.strerror}.", "Give a file in a folder that exists."
        ) from error


def load_plan(path: str | Path) -> Planning:
    """What `save_plan` or `legroom plan --json` has written."""
    try:
        return planning_from(json.loads(Path(path).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not a plan: {error}.", "Write one with `legroom plan TARGET --json`.") from error
