"""Training steps of Keras on JAX: each new shape is compiled, and its need compared with the limit, before it runs.

What the compiler says (`memory_analysis`) is what the program will hold. The program that was asked about is the one that runs,
so that nothing is compiled twice. A step that does not fit is cut into micro-batches, or recomputed, and asked about again.

Private names used, tested with Keras 3.15.1 and JAX 0.10.2: `Trainer.train_function` (called with the state and an iterator),
`Trainer._jax_state`, from which Keras gives the model its weights back when `fit` ends.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

from legroom.guard.calls import batch_of
from legroom.guard.journal import Witness
from legroom.guard.retry import GaveUp, Ways
from legroom.records.run import Event
from legroom.report.guard import refusal

STATE = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")


@dataclass
class JaxTraining:
    """One model's guarded training steps."""

    model: Any
    original: Any
    witness: Witness
    ways: Ways
    limit_bytes: int
    ended: Callable[[], None] = lambda: None
    programs: dict[Any, Any] = field(default_factory=dict)  # compiled, by the batch's shapes

    def __call__(self, state: Any, iterator: Any) -> Any:
        """As many steps as Keras wants in one execution; an error ends the guard."""
        logs = None
        for data in taken(iterator, self.model.steps_per_execution):
            try:
                logs, state = self.step(state, data)
            except BaseException:
                self.ended()
                raise
        return logs, state

    def step(self, state: Any, data: Any) -> Any:
        """One step with a program that is known to fit."""
        import jax

        if self.witness.position.goes_by(data):
            return {}, state
        self.witness.position.step += 1
        leaves = jax.tree_util.tree_leaves(data)
        key = tuple((tuple(leaf.shape), leaf.dtype) for leaf in leaves)
        program = self.programs.get(key)
        if program is None:
            try:
                program = self.programs[key] = self.fitting_program(state, data)
            except BaseException:
                keep_state(self.model, state)
                raise
        return program(state, data)

    def fitting_program(self, state: Any, data: Any) -> Any:
        """The step compiled for this batch, in as many micro-batches as it takes to fit."""
        import jax

        while True:
            program = jax.jit(self.model.train_step, donate_argnums=0).lower(state, data).compile()
            need = need_bytes(program) + beside_bytes(state, data)
            if need <= self.limit_bytes:
                return program
            failure = self.failure(data, need)
            if not self.ways.make_smaller(failure.batch):
                message, hint = refusal(failure, tuple(self.ways.reasons.values()))
                self.witness.note(replace(failure, kind="gave_up", message=message))
                raise GaveUp(message, hint)
            self.model.train_function = self
            self.programs.clear()
            self.witness.note(replace(failure, way=self.ways.way))

    def failure(self, data: Any, need: int) -> Event:
        event = self.witness.event("does_not_fit", "training", batch_of(data), way=self.ways.way)
        return replace(event, asked_bytes=need, free_bytes=self.limit_bytes)


def need_bytes(program: Any) -> int:
    """What a compiled program holds at its fullest: arguments, results and everything in between."""
    found = program.memory_analysis()
    if found is None:
        return 0
    size = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    return int(size - found.alias_size_in_bytes)


def beside_bytes(state: Any, data: Any) -> int:
    """What else lies on the device: all that is in use but the step's own arguments. Nobody counts it on a CPU."""
    import jax

    stats = jax.local_devices()[0].memory_stats()
    if not stats or "bytes_in_use" not in stats:
        return 0
    own = sum(int(leaf.nbytes) for leaf in jax.tree_util.tree_leaves((state, data)))
    in_use = int(stats["bytes_in_use"])
    return max(in_use - own, 0)


def taken(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    """So many batches, or as many as are left; StopIteration, at once, where none is."""
    first = next(iterator)
    return chain((first,), islice(iterator, count - 1))


def keep_state(model: Any, state: Any, names: Sequence[str] = STATE) -> None:
    """Where a step is not done, Keras finds the weights that it has taken out of the model."""
    model._jax_state = dict(zip(names, state, strict=True))
    model._jax_state_synced = False


def limit_of_device() -> int | None:
    """What JAX may use of its device, None on a CPU."""
    import jax

    stats = jax.local_devices()[0].memory_stats() or {}
    limit = stats.get("bytes_limit")
    return None if limit is None else int(limit)


def cannot_guard_jax(model: Any, limit_bytes: int | None) -> str:
    """Why a model's steps on JAX cannot be asked about beforehand, or nothing."""
    import keras

    if limit_bytes is None:
        return 'JAX on a CPU has no limit to compare a step with; Guard(budget="8GiB") gives it one.'
    if keras.distribution.distribution() is not None:
        return "it is distributed over several devices."
    if model.run_eagerly or not model.jit_compile:
        return "it is not compiled, and what a step on JAX takes is known only if it is."
    return ""
