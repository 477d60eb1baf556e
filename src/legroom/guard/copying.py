"""A step whose gradients and update cannot be told apart: everything that it assigns is copied to the host before it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from legroom.engines.out_of_memory import is_oom
from legroom.guard.calls import Traced, as_tensors
from legroom.guard.snapshots import Copied, copy
from legroom.guard.transaction import StepFailed, build, step_variables
from legroom.guard.update import Update


@dataclass
class CopyStep:
    """Keras' own step, put back from the host if memory runs out."""

    model: Any
    update: Update

    @cached_property
    def whole(self) -> Traced:
        return Traced(self.model.train_step, model=self.model)

    def __call__(self, data: Any) -> Any:
        self.update.careful += 1
        if self.model.run_eagerly:
            data = as_tensors(data)
            build(self.model, data)
            before = copy(everything(self.model))
            return attempt(before, lambda: self.model.train_step(data))
        call, leaves = self.whole.prepare(data)
        return attempt(copy(call.written), lambda: call(leaves))


def attempt(before: Copied, step: Any) -> Any:
    """The step, or StepFailed with all as it was."""
    try:
        return step()
    except BaseException as error:
        before.put_back()
        if is_oom(error):
            raise StepFailed("gradients", error) from None
        raise


def everything(model: Any) -> list[Any]:
    """All variables of a model, its metrics and its optimizers."""
    import keras

    optimizers = [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    found = [variable.value for optimizer in (model.optimizer, *optimizers) for variable in optimizer.variables]
    return list({id(variable): variable for variable in (*step_variables(model), *found)}.values())
