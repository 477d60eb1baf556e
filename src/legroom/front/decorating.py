"""`@legroom.train_step`: a training step of the user's own, in micro-batches, with a plan done to it, or guarded."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from legroom.errors import InputError
from legroom.front.methods import DecoratedStep
from legroom.front.planning import require_allowed
from legroom.guard.attempts import Options
from legroom.guard.journal import Journal, say
from legroom.records.plan import Action, Plan, Planning
from legroom.units import format_bytes


def train_step(  # noqa: PLR0913
    function: Any = None,
    *,
    micro_batches: int | None = None,
    plan: Plan | Planning | str | Path | None = None,
    allow: Sequence[str] = (),
    guard: bool = False,
    copies: bool = False,
    report: str | Path | None = None,
    verbose: bool = True,
) -> Any:
    """Decorate a function that opens a tape and applies gradients, above or below `@tf.function`, or without it.

    Each call cuts the arrays of the batch into `micro_batches` slices, runs the function for each, and lets it update once,
    with the whole batch's gradients. A `plan` says how many, and what else is done to the model that the function uses.

    With `guard=True`, above `@tf.function` or without it, a step that runs out of memory is taken back and taken again in more
    micro-batches; `run` on what is returned says what happened, and `report` is a file for it. `copies=True` guards steps whose
    update cannot be held back, too. On a method, each object has a step of its own.
    """
    wanted = Wanted(micro_batches, plan, allow, guard, copies, report, verbose)
    if function is None:
        return lambda decorated: train_step(decorated, **wanted._asdict())
    if isinstance(function, int):
        raise InputError(
            f"train_step was given {function!r} instead of a function.", "Write @legroom.train_step(micro_batches=4)."
        )
    chosen = chosen_plan(plan) if plan is not None else None
    wanted.check()
    require_tensorflow()
    from legroom.changes.custom_loop import is_tf_function

    decorate = decorator(wanted, chosen)
    if guard or (chosen is not None and besides(chosen)) or is_tf_function(function):
        return DecoratedStep(function, decorate)
    return decorate(function)  # a plain one, which Python binds and TensorFlow traces as it is


class Wanted(NamedTuple):
    """What `train_step` was told."""

    micro_batches: int | None
    plan: Plan | Planning | str | Path | None
    allow: Sequence[str]
    guard: bool
    copies: bool
    report: str | Path | None
    verbose: bool

    def check(self) -> None:
        given = (self.micro_batches is not None) + (self.plan is not None)
        if given > 1 or not (given or self.guard):
            raise InputError(
                "train_step takes either micro_batches or a plan, or a guard.",
                "Write @legroom.train_step(micro_batches=4) or @legroom.train_step(guard=True).",
            )
        if not self.guard and (self.copies or self.report is not None):
            raise InputError("copies and report are the guard's.", "Write @legroom.train_step(guard=True, ...).")

    def allowed(self, chosen: Plan | None) -> tuple[str, ...]:
        from legroom.changes.custom_loop import ALLOWED

        found = require_allowed((self.allow,) if isinstance(self.allow, str) else self.allow)
        made_with_it = chosen is not None and chosen.exactness == "inexact"
        return (*found, ALLOWED) if made_with_it else tuple(found)

    def slices(self, chosen: Plan | None) -> Any:
        if self.micro_batches is not None:
            return plain_number(self.micro_batches)
        actions = chosen.actions if chosen else ()
        found = [action["count"] for action in actions if action.name == "microbatch"]
        return found[0] if found else None


def besides(plan: Plan) -> tuple[Action, ...]:
    """What a plan does beside cutting the step."""
    return tuple(action for action in plan.actions if action.name != "microbatch")


def decorator(wanted: Wanted, chosen: Plan | None) -> Callable[[Any], Any]:
    """What makes of a function the step that is wanted; a method is decorated once for each object."""
    from legroom.changes.custom_loop import ALLOWED, split_function
    from legroom.guard.functions import guard_function

    allow, count = wanted.allowed(chosen), wanted.slices(chosen)
    kept = Journal(None if wanted.report is None else Path(wanted.report)).path

    def decorate(one: Any) -> Any:
        if wanted.guard:
            settings = Options(tuple(name for name in allow if name == ALLOWED), wanted.copies)
            journal = Journal(None, say if wanted.verbose else None)
            journal.path = kept  # of all objects, where it is a method
            step = guard_function(one, settings, journal, micro_batches=count or 1)
        else:
            step = one if count is None else split_function(one, count, allow, autograph=True)
        if chosen is None or not besides(chosen):
            return step
        return after_changing(step, one, replace(chosen, actions=besides(chosen)))

    return decorate


def plain_number(count: Any) -> Any:
    """One of NumPy's as Python's; anything else is looked at where batches are cut."""
    return int(count) if isinstance(count, Integral) and not isinstance(count, bool) else count


def chosen_plan(plan: Any) -> Plan:
    """A plan, the chosen one of several, or of those that were saved to a file."""
    if isinstance(plan, str | Path):
        from legroom.front.applying import load_plan

        plan = load_plan(plan)
    if isinstance(plan, Planning):
        if plan.best is None:
            smallest = min(plan.high_bytes for plan in (*plan.plans, plan.unchanged))
            raise InputError(
                f"No plan of these surely fits into {format_bytes(plan.usable_bytes)}, so there is none to apply: the smallest needs up to "
                f"{format_bytes(smallest)}.",
                "Pass one of planning.plans to try it, or plan for more memory.",
            )
        return plan.best
    if not isinstance(plan, Plan):
        raise InputError(f"Expected a plan, received a {type(plan).__name__}.", "Pass what legroom.plan returns.")
    return plan


def after_changing(step: Callable[..., Any], function: Any, plan: Plan) -> Callable[..., Any]:
    """The step, before whose first call its model is changed: when it is decorated the model may not be there yet."""
    done: list[Any] = []

    @functools.wraps(getattr(function, "python_function", function))
    def called(*args: Any, **kwargs: Any) -> Any:
        if not done:
            from legroom.changes.actions import perform
            from legroom.front.function_step import model_of
            from legroom.front.matching import actions_for

            model = model_of(function)
            done.append(perform(model, actions_for(plan, model)))
        return step(*args, **kwargs)

    return called


def require_tensorflow() -> None:
    from legroom.capture.keras_execution import framework_of_keras

    if framework_of_keras() != "tensorflow":
        raise InputError(
            "train_step is for loops with tf.GradientTape, and Keras runs on another backend here.",
            "Set KERAS_BACKEND=tensorflow.",
        )
