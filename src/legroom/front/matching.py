"""A plan meets a model: whether it was made for this one, and what its layers are called here."""

from typing import Any

from legroom.changes.portrait import portrait_of
from legroom.errors import InputError
from legroom.records.plan import Action, Plan
from legroom.records.portrait import first_difference, renaming


def actions_for(plan: Plan, model: Any, *, force: bool = False) -> tuple[Action, ...]:
    """The plan's actions in this model's names. One that was made for another model is refused, unless `force`d."""
    if plan.made_for is None:
        return plan.actions
    here = portrait_of(model)
    difference = None if force else first_difference(plan.made_for, here)
    if difference is not None:
        raise InputError(
            f"This plan was made for {difference}.",
            "Make a plan for this model, or do this one all the same with force=True: what it takes then is not known.",
        )
    names = renaming(plan.made_for, here)
    return tuple(renamed(action, names) for action in plan.actions) if names else plan.actions


def renamed(action: Action, names: dict[str, str]) -> Action:
    """Layers are named in lists; a text that stands alone, such as a precision, is none."""
    settings = tuple(
        (key, in_list(value, names) if isinstance(value, tuple) else value) for key, value in action.settings
    )
    return Action(action.name, settings)


def in_list(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, tuple):
        return tuple(in_list(item, names) for item in value)
    return names.get(value, value) if isinstance(value, str) else value
