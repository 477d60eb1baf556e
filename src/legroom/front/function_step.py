"""Actions done to the step of a loop that the user wrote: to its function, and to the model that the function computes with."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from legroom.capture.tf_step import FunctionStep, tensor_specs
from legroom.changes.actions import Done, perform
from legroom.errors import InputError
from legroom.records.plan import Action, together


def perform_on_step(
    captured: FunctionStep, actions: Sequence[Action], tried: dict[Any, Any]
) -> tuple[FunctionStep, Done]:
    """The step with these actions done. `tried` keeps what was found out about it; whether inexact is allowed is asked elsewhere."""
    slices = [action for action in actions if action.name == "microbatch"]
    others = [action for action in actions if action.name != "microbatch"]
    if any(action.name == "mixed_precision" and action["policy"] == "mixed_float16" for action in others):
        raise InputError(
            "float16 needs a loss that is scaled, and a loop of its own scales its own loss.",
            "Wrap the optimizer in keras.optimizers.LossScaleOptimizer and set the global policy.",
        )
    done = perform(model_of(captured.function), others) if others else perform(None, ())
    if not slices:
        return captured, done
    try:
        from legroom.changes.custom_arguments import arguments_of
        from legroom.changes.custom_loop import ALLOWED, split_function

        traced = captured.step.source.startswith("@")
        function = split_function(captured.function, slices[0]["count"], (ALLOWED,), autograph=traced, known=tried)
        function.legroom_step.prepare(arguments_of(tensor_specs(captured.args), tensor_specs(captured.kwargs)))
        effect = function.legroom_step.effect()
    except BaseException:
        done.undo()
        raise
    return replace(captured, function=function), Done(together([done.effect, effect]), done.undo)


def model_of(function: Any) -> Any:
    """The one model that a loop's step trains."""
    from legroom.changes.custom_models import models_of

    models = models_of(function)
    if len(models) == 1:
        return models[0]
    what = f"computes with {len(models)} models" if models else "names no Keras model"
    raise InputError(
        f"This script trains with a loop of its own, whose step {what}, so that Legroom cannot change its layers from outside.",
        "Train with model.fit, or let the step use one model: micro-batches may do all the same.",
    )
