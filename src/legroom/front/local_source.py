"""A captured step of this process: lowered, changed and put back right here."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from legroom.engines.host.observe import Observed
from legroom.engines.op.grappler import Device
from legroom.engines.op.lower import OpStep
from legroom.errors import InputError
from legroom.front.source import Capability
from legroom.records import Lowered, Step
from legroom.records.alternative import Alternative
from legroom.records.plan import Action, Effect
from legroom.records.portrait import Portrait


class LocalSource:
    """A step of this process: `legroom.estimate(model, batch)`."""

    is_elsewhere = False

    def __init__(self, captured: Any, *, is_script: bool = False) -> None:
        self.captured = captured
        self.is_script = is_script
        self.step: Step = captured.step
        self.observed: Observed | None = None
        self.actions: tuple[Action, ...] = ()
        self.undo: Callable[[], None] | None = None
        self.plain_prints: dict[int | None, str | None] = {}
        self.plain = captured  # as it was before it was changed
        self.tried: dict[Any, Any] = {}  # what was found out about a loop's own step

    def fingerprint(self, batch: int | None) -> str | None:
        from legroom.capture.fingerprint import fingerprint
        from legroom.capture.keras_fit import KerasStep

        captured = self.resized(batch)
        if self.actions:  # known by the plain step's fingerprint, if that was asked for, and what was done to it
            plain = self.plain_prints.get(self.step.batch)
            return None if plain is None else f"{plain} at batch {batch} {self.actions}"
        known = fingerprint(captured) if isinstance(captured, KerasStep) else None
        if self.step.batch not in self.plain_prints:
            is_same = captured is self.captured or known is None
            self.plain_prints[self.step.batch] = known if is_same else fingerprint(self.captured)
        return known

    def lower(self, batch: int | None, capability: Capability) -> Lowered:
        from legroom.engines.xla.lower import lower

        return lower(self.resized(batch), capability)

    def work(self, batch: int | None, device: Device) -> OpStep:
        from legroom.engines.op.lower import lower

        return lower(self.resized(batch), device)

    def observe(self) -> Observed:
        from legroom.engines.host.observe import observe

        if self.observed is None:
            self.observed = observe(self.captured, is_script=self.is_script)
        return self.observed

    def change(self, actions: Sequence[Action]) -> Effect:
        """Undo what was done to the model before, and do these."""
        from legroom.capture.tf_step import FunctionStep
        from legroom.changes.actions import perform

        if self.undo is not None:
            self.undo()
        self.undo, self.actions, self.captured, self.step = None, (), self.plain, self.plain.step
        if isinstance(self.plain, FunctionStep):
            from legroom.front.function_step import perform_on_step

            self.captured, done = perform_on_step(self.plain, actions, self.tried)
        else:
            done = perform(self.model(), actions)
            self.captured = replace(self.plain, step=running(self.plain.step, actions))
        self.undo, self.actions, self.step = done.undo, tuple(actions), self.captured.step
        return done.effect

    def possible(self) -> list[Action]:
        """What could be done to the step as it was captured, beside recomputing and micro-batches."""
        from legroom.changes.possible import possible_actions

        try:
            return possible_actions(self.plain, self.model())
        except InputError:  # a custom loop without a model that it could be done to
            return []

    def segments(self, batch: int | None) -> list[dict[str, Any]]:
        """What could be recomputed, in the order of execution: names, bytes and flops at that batch."""
        from legroom.changes.segments import costs_of

        return costs_of(self.model(), batch or self.step.batch or 1)

    def portrait(self) -> Portrait | None:
        """The model that plans are made for; None where a loop has none, or several. Asked of the step as it is."""
        from legroom.changes.portrait import portrait_of

        with suppress(InputError):
            return portrait_of(self.model())
        return None

    def alternatives(self, holders: Sequence[str]) -> list[Alternative]:
        """What could be different about the model, in which these layers hold the most."""
        from legroom.capture.keras_fit import KerasStep
        from legroom.changes.alternatives import alternatives_of

        return alternatives_of(self.plain.built(), holders) if isinstance(self.plain, KerasStep) else []

    def imagine(self, alternative: Alternative) -> None:
        """From now on the step of a model that has it so; `change` comes back to the real one."""
        from legroom.changes.alternatives import altered

        self.captured = altered(self.plain.built(), alternative)
        self.step = self.captured.step

    def model(self) -> Any:
        """The model that can be changed; a custom loop's step has code of its own around it."""
        from legroom.capture.tf_step import FunctionStep

        if isinstance(self.plain, FunctionStep):
            from legroom.front.function_step import model_of

            return model_of(self.plain.function)
        return self.plain.built().model

    def resized(self, batch: int | None) -> Any:
        if batch is None or batch == self.captured.step.batch:
            return self.captured
        return self.captured.at_batch(batch)


def running(step: Step, actions: Sequence[Action]) -> Step:
    """The step as it runs when it is compiled, or no longer is."""
    for action in actions:
        if action.name == "compile":
            on = action["jit_compile"]
            reason = f"jit_compile={on}, as the plan has it"
            step = replace(step, execution="xla" if on else "graph", execution_reason=reason, compiled_for_gpu=False)
    return step
