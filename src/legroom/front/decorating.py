"""`@legroom.train_step`: a training step of the user's own, in micro-batches, with a plan done to it, or guarded."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

from legroom.errors import InputError
from legroom.front.methods import DecoratedStep
from legroom.front.planning import require_allowed
from legroom.guard.attempts import Options
from legroom.guard.journal import Journal, say
from legroom.records.plan import Plan, Planning


def train_step(  # noqa: PLR0913
    function: Any = None,
    *,
    micro_batches: int | None = None,
    plan: Plan | Planning | None = None,
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
    wanted: dict[str, Any] = {"micro_batches": micro_batches, "plan": plan, "allow": allow, "guard": guard}
    wanted |= {"copies": copies, "report": report, "verbose": verbose}
    if function is None:
        return lambda decorated: train_step(decorated, **wanted)
    if isinstance(function, int):
        raise InputError(
            f"train_step was given {function!r} instead of a function.", "Write @legroom.train_step(micro_batches=4)."
        )
    chosen = chosen_plan(plan) if plan is not None else None
    actions = () if chosen is None else chosen.actions
    counts = [action["count"] for action in actions if action.name == "microbatch"]
    if (micro_batches is not None and plan is not None) or (micro_batches is None and plan is None and not guard):
        raise InputError(
            "train_step takes either micro_batches or a plan, or a guard.",
            "Write @legroom.train_step(micro_batches=4) or @legroom.train_step(guard=True).",
        )
    if not guard and (copies or report is not None):
        raise InputError("copies and report are the guard's.", "Write @legroom.train_step(guard=True, ...).")
    require_tensorflow()
    from legroom.changes.custom_loop import ALLOWED, is_tf_function, split_function
    from legroom.guard.functions import guard_function

    allow = require_allowed((allow,) if isinstance(allow, str) else allow)
    if chosen is not None and chosen.exactness == "inexact":
        allow = (*allow, ALLOWED)  # the plan was made with it
    count = plain_number(micro_batches) if micro_batches is not None else counts[0] if counts else None
    others = tuple(action for action in actions if action.name != "microbatch")
    kept = Journal(None if report is None else Path(report)).path

    def decorate(one: Any) -> Any:
        if guard:
            settings = Options(tuple(name for name in allow if name == ALLOWED), copies)
            journal = Journal(None, say if verbose else None)
            journal.path = kept  # of all objects, where it is a method
            step = guard_function(one, settings, journal, micro_batches=count or 1)
        else:
            step = one if count is None else split_function(one, count, allow, autograph=True)
        return step if chosen is None or not others else after_changing(step, one, replace(chosen, actions=others))

    if guard or others or is_tf_function(function):
        return DecoratedStep(function, decorate)
    return decorate(function)  # a plain one, which Python binds and TensorFlow traces as it is


def plain_number(count: Any) -> Any:
    """One of NumPy's as Python's; anything else is looked at where batches are cut."""
    return int(count) if isinstance(count, Integral) and not isinstance(count, bool) else count


def chosen_plan(plan: Any) -> Plan:
    if isinstance(plan, Planning):
        if plan.best is None:
            raise InputError(
                "No plan of these fits, so there is none to apply.", "Pass one of planning.plans to try it."
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
