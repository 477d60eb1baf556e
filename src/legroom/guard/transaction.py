"""A training step of Keras on TensorFlow that happens as a whole or not at all.

First the gradients: `model.train_step` with its optimizer held back. What that pass assigns (metrics, statistics, seeds) is
read from the traced graph and held before it, by reference. Then the update from the held gradients, in `update`. So weights
and slots need no copy. This holds all gradients at once, where a step in one piece may free some earlier.

Private names used, tested with Keras 3.15.1: `Optimizer.apply` on the instance (through `guard.holding`),
`Trainer._symbolic_build`, the global attribute "global_seed_generator".
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

from legroom.engines.out_of_memory import is_oom
from legroom.errors import InputError, LegroomError
from legroom.guard.calls import Traced, as_tensors, note_layout
from legroom.guard.holding import Held as HeldBack
from legroom.guard.holding import holding
from legroom.guard.room import Room
from legroom.guard.snapshots import Held, hold
from legroom.guard.traced import read_after
from legroom.guard.update import Gradients, Update, UpdateFailed, flat_gradients

Phase = Literal["gradients", "update", "evaluation", "prediction"]


class NotSeparable(InputError):
    """A training step whose gradients and update cannot be told apart."""


class StepFailed(Exception):
    """Memory ran out, and everything is as before the step."""

    def __init__(self, phase: Phase, error: BaseException) -> None:
        super().__init__(str(error))
        self.phase = phase
        self.error: BaseException | None = error


class Step(Protocol):
    """What does one training step with a batch, or raises StepFailed."""

    def __call__(self, data: Any) -> Any: ...


@dataclass
class GraphStep:
    """For models that run as graphs, op by op."""

    model: Any
    room: Room
    update: Update

    @cached_property
    def gradients(self) -> Traced:
        return Traced(self.trace_gradients, model=self.model)

    def trace_gradients(self, data: Any) -> Any:
        """The gradient pass: what the step logs, and its gradients as a flat list of tensors."""
        import tensorflow as tf

        logs, held, mark = held_back(self.model, lambda: self.model.train_step(data), count_operations)
        graph = tf.compat.v1.get_default_graph()
        layout, tensors = flat_gradients(held)
        if mark is not None and read_after(graph, mark, self.update.variables(layout)):
            raise not_separable(self.model, "uses weights again after it has updated them")
        note_layout(layout)
        return logs, tensors

    def __call__(self, data: Any) -> Any:
        """One step, or StepFailed with all state as it was."""
        try:
            call, leaves = self.gradients.prepare(data)
        except BaseException as error:
            if is_oom(error):
                raise StepFailed("gradients", error) from None
            raise
        before = call.hold()
        try:
            logs, tensors = call(leaves)
        except BaseException as error:
            before.put_back()
            if is_oom(error):
                raise StepFailed("gradients", error) from None
            raise
        run_update(self.update, Gradients(call.layout, tensors), before, self.update.shared_bytes(call))
        return logs


@dataclass
class EagerStep:
    """For models that run eagerly: all that could be assigned is held, by reference."""

    model: Any
    room: Room
    update: Update
    checked: list[bool] = field(default_factory=list)

    def __call__(self, data: Any) -> Any:
        data = as_tensors(data)
        if not self.checked:
            build(self.model, data)
        before = hold(step_variables(self.model))
        try:
            logs, gradients = self.compute(data)
        except BaseException as error:
            before.put_back()
            if is_oom(error):
                raise StepFailed("gradients", error) from None
            raise
        # The update puts weights and slots back itself; what others hold, it would have to copy.
        before = before.without(self.update.variables(gradients.layout))
        run_update(self.update, gradients, before)
        return logs

    def compute(self, data: Any) -> tuple[Any, Gradients]:
        """The step with its update held back; the first time, whether it uses what the update would have changed."""
        import tensorflow as tf

        if self.checked:
            logs, held, _ = held_back(self.model, lambda: self.model.train_step(data), None)
        else:
            tape = tf.GradientTape(persistent=True)
            entered: list[Any] = []

            def watch() -> int:
                entered.append(tape.__enter__())
                return 0

            try:
                logs, held, _ = held_back(self.model, lambda: self.model.train_step(data), watch)
            finally:
                if entered:
                    tape.__exit__(None, None, None)
            if entered and tape.watched_variables():
                raise not_separable(self.model, "uses weights again after it has updated them")
            self.checked.append(True)
        layout, tensors = flat_gradients(held)
        return logs, Gradients(layout, tensors)


def run_update(update: Update, gradients: Gradients, before: Held, beside_bytes: int = 0) -> None:
    """The second half of a step; if it fails, the first one is taken back, too."""
    try:
        update(gradients, beside_bytes)
    except UpdateFailed as failed:
        before.put_back()
        error, failed.error = failed.error, None
        assert error is not None
        raise StepFailed("update", error) from None
    except BaseException:
        before.put_back()
        raise


def held_back(
    model: Any, step: Callable[[], Any], at_update: Callable[[], int] | None
) -> tuple[Any, HeldBack, int | None]:
    """Run the step with its optimizer held back. `at_update` is called at that moment; what it says is handed back."""
    try:
        with holding(model, at_update) as held:
            logs = step()
    except LegroomError as error:
        if "several optimizers" in error.message:
            raise not_separable(model, "updates weights with several optimizers") from None
        raise
    if held.calls > 1:
        raise not_separable(model, f"updates weights {held.calls} times")
    return logs, held, held.mark


def count_operations() -> int:
    import tensorflow as tf

    return len(tf.compat.v1.get_default_graph().get_operations())


def not_separable(model: Any, why: str) -> NotSeparable:
    return NotSeparable(
        f"The train_step of {type(model).__name__} {why}, so that it cannot be computed first and applied afterwards.",
        "Guard(copies=True) guards it all the same, with a copy of weights and slots on the host at each step.",
    )


def step_variables(model: Any) -> list[Any]:
    """All variables that the gradient pass of an eager step could assign, TensorFlow's own."""
    from keras.src.backend.common import global_state

    generator = global_state.get_global_attribute("global_seed_generator")
    found = [*model.variables, *model.metrics_variables, *([] if generator is None else [generator.state])]
    return list({id(variable): variable.value for variable in found}.values())


def build(model: Any, data: Any) -> None:
    """What is built at the first step is built before it: its values are to be held."""
    metrics = model._compile_metrics
    if not model.built or (metrics is not None and not metrics.built):
        try:
            model._symbolic_build(data_batch=data)
        except Exception:  # noqa: BLE001 - code that runs eagerly only: Keras builds it at the first step
            return
