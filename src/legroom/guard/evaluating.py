"""The functions that `evaluate` and `predict` call for each batch while they are guarded.

A batch that does not fit is cut, twice as often each time, and stays cut for the rest of the run; results and metrics are the
whole batch's. Nothing else is changed: what they assign is held before, as in training.

Private names used, tested with Keras 3.15.1: `Trainer.test_function`, `Trainer.predict_function` (which is given a list of
batches, one for each step of an execution).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from legroom.engines.out_of_memory import is_oom, oom_of
from legroom.guard.calls import Traced, as_tensors, batch_of
from legroom.guard.execution import execute
from legroom.guard.forgetting import forget
from legroom.guard.journal import Witness
from legroom.guard.retry import gave_up
from legroom.guard.sliced import PredictStep, TestStep
from legroom.guard.snapshots import Held, hold
from legroom.guard.transaction import build, step_variables
from legroom.records.run import Way, Where
from legroom.report.guard import refusal


@dataclass
class Cutting:
    """In how many slices each batch is taken, and what is told when that changes."""

    witness: Witness
    where: Where
    count: int = 1

    def cut_more(self, data: Any, error: BaseException) -> None:
        """Memory ran out, and all is as before: twice as many slices, or give up."""
        fact = oom_of(error)
        forget(error)
        del error
        failure = self.witness.event("out_of_memory", self.where, batch_of(data), fact, Way(self.count))
        self.witness.note(failure)
        if failure.batch is None or self.count >= failure.batch:
            message, hint = refusal(failure, ())
            self.witness.note(replace(failure, kind="gave_up", message=message))
            raise gave_up(message, hint)
        self.count = min(2 * self.count, failure.batch)
        self.witness.note(replace(failure, kind="changed", way=Way(self.count), message=""))


@dataclass
class Guarded:
    """One model's guarded batches, in as many slices as it takes."""

    model: Any
    cutting: Cutting
    ended: Callable[[], None] = lambda: None

    @property
    def slices(self) -> int:
        return self.cutting.count

    def cut_into(self, count: int) -> None:
        self.cutting.count = count


@dataclass
class Testing(Guarded):
    """Evaluation."""

    traced: dict[int, Traced] = field(default_factory=dict)

    def __call__(self, iterator: Any) -> Any:
        return execute(iterator, self.model.steps_per_execution, self.step, self.cutting.witness, self.ended)

    def step(self, data: Any) -> Any:
        while True:
            run, before = self.prepare(data)
            try:
                return run()
            except BaseException as error:
                before.put_back()
                if not is_oom(error):
                    raise
                failed = error
            del run, before
            self.cutting.cut_more(data, failed)
            del failed

    def prepare(self, data: Any) -> tuple[Callable[[], Any], Held]:
        """One attempt, and what to go back to."""
        count = self.cutting.count
        compiled = bool(self.model.jit_compile)
        step = self.model.test_step if count == 1 else TestStep(self.model, count, compiled)
        if self.model.run_eagerly:
            data = as_tensors(data)
            build(self.model, data)
            return lambda: step(data), hold(step_variables(self.model))
        if count not in self.traced:
            self.traced[count] = Traced(step, compiled, model=self.model)
        call, leaves = self.traced[count].prepare(data)
        return lambda: call(leaves), call.hold()


@dataclass(kw_only=True)
class Predicting(Guarded):
    """Prediction: Keras' own function, on whole batches or on slices of them."""

    original: Callable[[Any], Any]

    def __call__(self, data: Any) -> Any:
        """The outputs of these batches, one after the other."""
        import keras
        import tensorflow as tf

        try:
            found = [self.step(batch) for batch in data]
        except BaseException:
            self.ended()
            raise
        if len(found) == 1:
            return found[0]
        return keras.tree.map_structure(lambda *parts: tf.concat(parts, 0), *found)

    def step(self, data: Any) -> Any:
        while True:
            before = hold([variable.value for variable in self.model.non_trainable_variables])
            try:
                if self.cutting.count == 1:
                    return self.original([data])
                return PredictStep(self.model, self.cutting.count)(as_tensors(data), lambda part: self.original([part]))
            except BaseException as error:
                before.put_back()
                if not is_oom(error) or batch_of(data) is None:
                    raise
                failed = error
            self.cutting.cut_more(data, failed)
            del failed
