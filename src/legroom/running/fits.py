"""What happens when a script under `legroom run` calls `fit`, `evaluate` or `predict`: a plan, a guard and a keeper are added.

Private names used, tested with Keras 3.15.1: `keras.src.trainers.trainer.Trainer`, of which the backend's own trainer has `fit`.
"""

import inspect
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from legroom.capture.keras_execution import framework_of_keras
from legroom.changes.drawn import nothing_drawn
from legroom.errors import DoesNotFit, LegroomError, MissingError
from legroom.front.applying import apply
from legroom.front.fitting import captured_fit, look_at
from legroom.records.plan import Plan
from legroom.running.settings import Settings
from legroom.running.speech import say
from legroom.running.store import Store
from legroom.running.untrained import begun

VERBS = ("fit", "evaluate", "predict", "train_on_batch")
TRAINS = ("fit", "train_on_batch")
ON_BATCH = "_legroom_on_batch"  # on a model that is trained batch by batch: its guard


@dataclass
class Fits:
    """The trainings of one process, numbered as they come."""

    settings: Settings
    store: Store
    process: int = field(default_factory=os.getpid)
    count: int = 0
    inside: bool = False
    plans: dict[str, Plan] = field(default_factory=dict)  # by what they were made for

    def install(self) -> None:
        """Right after Keras was imported."""
        from keras import Model
        from keras.src.trainers.trainer import Trainer

        trainer = next((cls for cls in Model.__mro__ if "fit" in vars(cls) and issubclass(cls, Trainer)), None)
        if trainer is None:
            raise MissingError("Keras' trainer is not where it was in the tested version (Keras 3.15.1).")
        for verb in VERBS:
            setattr(trainer, verb, self.watched(getattr(trainer, verb), verb))

    def watched(self, method: Callable[..., Any], verb: str) -> Callable[..., Any]:
        signature = inspect.signature(method)

        @wraps(method)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            # what a process forked from this one trains is its own affair, and so is a call from inside another
            if self.inside or os.getpid() != self.process or (not model.compiled and verb in TRAINS):
                return method(model, *args, **kwargs)
            arguments = dict(signature.bind(model, *args, **kwargs).arguments)
            model = arguments.pop("self")
            self.inside = True
            try:
                if verb == "fit":
                    return self.fit(model, method, arguments)
                if verb == "train_on_batch":
                    return self.train_on_batch(model, method, arguments)
                begun(self.store.folder)
                return method(model, **{**arguments, "callbacks": [*listed(arguments), self.guard(arguments)]})
            finally:
                self.inside = False

        return call

    def guard(self, arguments: dict[str, Any]) -> Any:
        """The script's own, or one of ours."""
        from legroom.guard.callback import Guard

        for given in listed(arguments):
            if isinstance(given, Guard):
                return given
        guard = Guard(
            allow=[name for name in self.settings.allow if name == "batchnorm-split"], budget=self.settings.budget_bytes
        )
        guard.journal.path = self.settings.events
        return guard

    def fit(self, model: Any, method: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        from legroom.running.csv_logs import go_on
        from legroom.running.keeper import Keeper
        from legroom.running.planning import with_plan

        number, self.count = self.count, self.count + 1
        given = listed(arguments)
        guard = self.guard(arguments)
        keeper = Keeper(self.store, number, guard, self.settings.every_seconds, say)
        keeper.others = [other for other in given if other is not guard]
        keeper.resume = self.settings.resume
        keeper.first = int(arguments.get("initial_epoch") or 0)
        if keeper.resume and self.store.has(number):  # else it must draw what it would have drawn
            build(model, arguments)
        if self.settings.resume and self.store.facts(number, "done") is not None:
            return method(model, **{**arguments, "epochs": 0, "callbacks": [guard, keeper], "verbose": 0})
        if keeper.resume:
            kept = self.store.facts(number, "midway") or self.store.facts(number, "epoch")
            go_on(keeper.others, int(kept["epoch"]) if kept else 0)
        guard.start = self.settings.way
        ours = [guard, *keeper.others, keeper]
        with with_plan(model, self.planned(model, "fit", arguments, number)):
            return method(model, **{**arguments, "callbacks": ours})

    def train_on_batch(self, model: Any, method: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Planned at the first batch of a model, and guarded from then on."""
        if framework_of_keras() != "tensorflow":
            return method(model, **arguments)
        if ON_BATCH not in model.__dict__:
            plan = self.planned(model, "train_on_batch", dict(arguments), self.count)
            self.count += 1
            if plan is not None and plan.actions:
                apply(plan, model)  # until the script ends
            model.__dict__[ON_BATCH] = self.guard({})
        guard = model.__dict__[ON_BATCH]
        training = guard.installed.get("train")
        if training is None or model.train_function is not training.training:
            model.make_train_function()
            guard.set_model(model)
            guard.start = self.settings.way
            guard.on_train_begin()
            begun(self.store.folder)
        return method(model, **arguments)

    def planned(self, model: Any, verb: str, arguments: dict[str, Any], number: int) -> Plan | None:
        """What is to be done to the model, which is trained by that method."""
        from legroom.running.planning import Training, find_plan

        if not self.settings.plan:
            return None
        try:
            return find_plan(Training(model, verb, arguments, number), self.settings, self.plans)
        except DoesNotFit as refused:
            say(f"{refused.message} It is guarded all the same.")
        except LegroomError as error:
            say(f"no plan was made ({error.message}). The training is guarded all the same.")
        return None


def build(model: Any, arguments: dict[str, Any]) -> None:
    """Make all variables, which Keras does at the first step: a state is taken up before it."""
    seen, arguments["x"] = look_at(arguments.get("x"))
    with suppress(LegroomError), nothing_drawn():
        captured_fit(model, {**arguments, "x": seen}).built()


def listed(arguments: dict[str, Any]) -> list[Any]:
    """The callbacks that the script gives."""
    given = arguments.get("callbacks")
    if given is None:
        return []
    if hasattr(given, "callbacks"):  # a CallbackList: whoever makes one wants no others
        return list(given.callbacks)
    return list(given) if isinstance(given, list | tuple) else [given]
