"""What happens when a script under `legroom run` calls a training step of its own, a `tf.function`: it is planned and guarded.

Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.eager.polymorphic_function.polymorphic_function.Function`
(its `__call__`).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from legroom.capture.own_work import own_work
from legroom.errors import DoesNotFit, LegroomError
from legroom.guard.function_step import OWN
from legroom.guard.retry import ALLOWED
from legroom.records.plan import Plan
from legroom.running.fits import Fits
from legroom.running.settings import Settings
from legroom.running.speech import say
from legroom.running.untrained import begun

GUARDED = "_legroom_guarded"  # on a function: its guarded step, or False
EAGER = (
    "gradients are taken outside of a tf.function, where training steps can be neither planned nor guarded: "
    "@legroom.train_step(guard=True) on a function of the batch does it."
)


@dataclass
class Functions:
    """The training steps that a script wrote itself."""

    settings: Settings
    fits: Fits  # what is called from inside `fit` is Keras' own
    said: bool = False
    began: bool = False

    def install(self) -> None:
        """Right after TensorFlow was imported."""
        import tensorflow as tf
        from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

        Function.__call__ = self.watched(Function.__call__)
        entered = tf.GradientTape.__enter__

        @wraps(entered)
        def enter(tape: Any) -> Any:
            if not self.fits.inside:
                self.begin()
            if not self.said and not self.elsewhere() and at_top():
                self.said = True
                say(EAGER)
            return entered(tape)

        tf.GradientTape.__enter__ = enter

    def begin(self) -> None:
        """The script trains from now on."""
        if not self.began and os.getpid() == self.fits.process:
            self.began = True
            begun(self.settings.home)

    def elsewhere(self) -> bool:
        return self.fits.inside or own_work.on or os.getpid() != self.fits.process

    def watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            found = vars(function).get(GUARDED)
            if found is False or hasattr(function, OWN) or self.elsewhere() or not at_top():
                return original(function, *args, **kwargs)
            self.fits.inside = True
            try:
                if found is None:
                    found = self.decide(function, original, args, kwargs)
                    if found is not False or takes_gradients(function):
                        self.begin()
                    vars(function)[GUARDED] = found  # there, so that it goes when the function does
                return original(function, *args, **kwargs) if found is False else found(*args, **kwargs)
            finally:
                self.fits.inside = False

        return call

    def decide(self, function: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The guarded step; False where this function is none."""
        from legroom.changes.custom_loop import MARK
        from legroom.changes.custom_models import trains
        from legroom.guard.attempts import Options
        from legroom.guard.functions import guard_function
        from legroom.guard.journal import Journal

        if not trains(function) or hasattr(function.python_function, MARK):  # cut by the script itself
            return False
        count = self.planned(function, args, kwargs)
        options = Options(tuple(name for name in self.settings.allow if name == ALLOWED))
        journal = Journal()
        journal.path = self.settings.events
        most = max(count, self.settings.way.micro_batches)

        def plain(*given: Any, **named: Any) -> Any:
            return original(function, *given, **named)

        return guard_function(function, options, journal, micro_batches=most, original=plain)

    def planned(self, function: Any, args: Any, kwargs: Any) -> int:
        """How many micro-batches the plan has; what else is in it is done to the model, for as long as the script runs."""
        from legroom.running.planning import find_function_plan

        if not self.settings.plan:
            return 1
        try:
            plan = find_function_plan(function, args, kwargs, self.settings)
            return 1 if plan is None else perform_plan(function, plan)
        except DoesNotFit as refused:
            say(refused.message)
        except LegroomError as error:
            say(f"no plan was made: {error.message}")
        return 1


def perform_plan(function: Any, plan: Plan) -> int:
    from dataclasses import replace

    from legroom.changes.actions import perform
    from legroom.front.function_step import model_of
    from legroom.front.matching import actions_for

    counts = [int(action["count"]) for action in plan.actions if action.name == "microbatch"]
    others = tuple(action for action in plan.actions if action.name != "microbatch")
    if others:
        model = model_of(function)
        perform(model, actions_for(replace(plan, actions=others), model))
    return counts[0] if counts else 1


def takes_gradients(function: Any) -> bool:
    from legroom.changes.custom_models import names_in

    return "GradientTape" in names_in(function)


def at_top() -> bool:
    """Whether the script itself is running, and nothing is being traced."""
    import tensorflow as tf

    return bool(tf.executing_eagerly() and not tf.inside_function())
