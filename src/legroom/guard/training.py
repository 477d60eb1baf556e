"""The function that `fit` calls for each step while it is guarded, in place of Keras' own.

Keras' `train_function` pulls the batch inside its graph, so that after an error it is lost. This one takes the batch itself, and
can take the same one again.

Private names used, tested with Keras 3.15.1: `Trainer.train_function` (called anew at each step).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from legroom.guard.attempts import Attempts
from legroom.guard.calls import batch_of
from legroom.guard.compiled_step import CompiledStep
from legroom.guard.copying import CopyStep
from legroom.guard.execution import execute
from legroom.guard.transaction import EagerStep, GraphStep, Step
from legroom.guard.update import Update


@dataclass(kw_only=True)
class Training(Attempts):
    """One model's guarded training steps."""

    model: Any
    original: Any
    ended: Callable[[], None] = lambda: None

    @cached_property
    def update(self) -> Update:
        return Update(self.model, self.room, self.note_update)

    def __call__(self, iterator: Any) -> Any:
        """As many steps as Keras wants in one execution; an error ends the guard."""
        return execute(iterator, self.model.steps_per_execution, self.step, self.witness, self.ended)

    def step(self, data: Any) -> Any:
        """One step with this batch, unless it was trained on before."""
        return {} if self.witness.position.goes_by(data) else self.attempt(data)

    def batch_of(self, data: Any) -> int | None:
        return batch_of(data)

    def new_runner(self) -> Step:
        if self.model.jit_compile and not self.model.run_eagerly:
            return CompiledStep(self.model, self.room, self.options.budget_bytes)
        if self.model.run_eagerly:
            return EagerStep(self.model, self.room, self.update)
        return GraphStep(self.model, self.room, self.update)

    def copying_runner(self) -> Step:
        return CopyStep(self.model, self.update)

    def after_change(self) -> None:
        """A change makes Keras forget its functions, and this one with them."""
        super().after_change()
        self.model.train_function = self

    def step_unguarded(self, data: Any, reason: str) -> Any:
        """Keras' own step, from now on."""
        self.witness.note(replace(self.witness.event("not_guarded", "training", batch_of(data)), message=reason))
        self.model.train_function = self.original
        return self.original(iter([data]))
