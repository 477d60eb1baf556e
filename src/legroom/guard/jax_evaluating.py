"""`evaluate` and `predict` of Keras on JAX: each new shape is compiled, and its need compared with the limit, before it runs.

A batch that does not fit goes through the model in slices, whose outputs are put together; losses and metrics are computed from
the whole batch's outputs, by Keras' own step.

Private names used, tested with Keras 3.15.1 and JAX 0.10.2: `Trainer.test_function`, `Trainer.predict_function` (called with the
state and an iterator), `Trainer._call_has_training_arg`, `Layer._get_regularization_losses`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from legroom.guard.calls import batch_of
from legroom.guard.jax_training import beside_bytes, keep_state, need_bytes, taken
from legroom.guard.journal import Witness
from legroom.guard.retry import GaveUp
from legroom.records.run import Event, Way, Where
from legroom.report.guard import refusal

Program = Callable[[Any, Any], Any]  # of the state and a batch


@dataclass
class JaxBatches(ABC):
    """One model's guarded batches, in as many slices as it takes."""

    model: Any
    witness: Witness
    limit_bytes: int
    ended: Callable[[], None] = lambda: None
    count: int = 1
    programs: dict[Any, Program] = field(default_factory=dict)
    where: Where = "prediction"
    names: tuple[str, ...] = ("trainable_variables", "non_trainable_variables")

    @property
    def slices(self) -> int:
        return self.count

    def cut_into(self, count: int) -> None:
        self.count = count

    def __call__(self, state: Any, iterator: Any) -> Any:
        """As many batches as Keras wants in one execution; an error ends the guard."""
        found = []
        for data in taken(iterator, self.model.steps_per_execution):
            try:
                one, state = self.step(state, data)
            except BaseException:
                keep_state(self.model, state, self.names)
                self.ended()
                raise
            found.append(one)
        return self.together(found), state

    def step(self, state: Any, data: Any) -> Any:
        import jax

        leaves = jax.tree_util.tree_leaves(data)
        key = tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves)
        while key not in self.programs:
            program, need = self.compiled(state, data)
            if need <= self.limit_bytes:
                self.programs[key] = program
            else:
                self.cut_more(data, need)
        return self.programs[key](state, data)

    def cut_more(self, data: Any, need: int) -> None:
        event = self.witness.event("does_not_fit", self.where, batch_of(data), way=Way(self.count))
        event = replace(event, asked_bytes=need, free_bytes=self.limit_bytes)
        if event.batch is None or self.count >= event.batch:
            self.give_up(event)
        self.count = min(2 * self.count, event.batch or 1)
        self.programs.clear()
        self.witness.note(replace(event, way=Way(self.count)))

    def give_up(self, event: Event, *reasons: str) -> NoReturn:
        message, hint = refusal(event, reasons)
        self.witness.note(replace(event, kind="gave_up", message=message))
        raise GaveUp(message, hint)

    @abstractmethod
    def compiled(self, state: Any, data: Any) -> tuple[Program, int]:
        """What computes a batch the way that is taken now, and what it takes at its fullest."""

    @abstractmethod
    def together(self, found: list[Any]) -> Any:
        """What several batches of one execution give."""

    def given(self) -> dict[str, bool]:
        return {"training": False} if self.model._call_has_training_arg else {}

    def outputs(self, state: Any, x: Any) -> Any:
        found, _ = self.model.stateless_call(state[0], state[1], x, **self.given())
        return found

    def forward(self, state: Any, data: Any) -> tuple[Callable[[Any, Any], Any], int]:
        """The model's outputs for a whole batch, computed slice by slice; and what that takes."""
        import jax
        import keras

        def inputs(data: Any) -> Any:
            return keras.utils.unpack_x_y_sample_weight(data)[0]

        batch = batch_of(data) or 1
        size = -(-batch // self.count)
        known: dict[int, Any] = {}
        need = 0
        for rows in {size, batch % size or size}:
            part = rows_of(inputs(data), 0, rows)
            known[rows] = jax.jit(self.outputs).lower(state, part).compile()
            need = max(need, need_bytes(known[rows]))
        kept = jax.eval_shape(self.outputs, state, inputs(data))
        whole = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree_util.tree_leaves(kept))

        def run(state: Any, data: Any) -> Any:
            parts = []
            for start in range(0, batch, size):
                rows = min(size, batch - start)
                parts.append(known[rows](state, rows_of(inputs(data), start, rows)))
            return joined(parts)

        given = sum(int(leaf.nbytes) for leaf in jax.tree_util.tree_leaves(data))  # the slices are copies of it
        return run, need + given + 2 * whole + beside_bytes(state, data)


class JaxPredicting(JaxBatches):
    """In place of `model.predict_function`."""

    def compiled(self, state: Any, data: Any) -> tuple[Program, int]:
        import jax

        if self.count == 1:

            def whole(state: Any, data: Any) -> Any:
                outputs, others = self.model.predict_step(state, data)
                return outputs, (state[0], others)

            program = jax.jit(whole, donate_argnums=0).lower(state, data).compile()
            return program, need_bytes(program) + beside_bytes(state, data)
        run, need = self.forward(state, data)
        return lambda state, data: (run(state, data), state), need

    def together(self, found: list[Any]) -> Any:
        return found[0] if len(found) == 1 else joined(found)


class JaxTesting(JaxBatches):
    """In place of `model.test_function`."""

    def compiled(self, state: Any, data: Any) -> tuple[Program, int]:
        import jax
        import keras

        if self.count == 1:
            program = jax.jit(self.model.test_step, donate_argnums=0).lower(state, data).compile()
            return program, need_bytes(program) + beside_bytes(state, data)
        self.require_plain(state, data)
        run, need = self.forward(state, data)

        def rest(state: Any, data: Any, outputs: Any) -> Any:
            with answered(self.model, outputs):
                return self.model.test_step(state, data)

        outputs = jax.eval_shape(self.outputs, state, keras.utils.unpack_x_y_sample_weight(data)[0])
        last = jax.jit(rest).lower(state, data, outputs).compile()
        need = max(need, need_bytes(last) + beside_bytes(state, data))
        return lambda state, data: last(state, data, run(state, data)), need

    def together(self, found: list[Any]) -> Any:
        return found[-1]

    def require_plain(self, state: Any, data: Any) -> None:
        """Losses that layers add from their inputs, and a `test_step` of the user's own, are not put together from slices."""
        import jax
        import keras

        def added(state: Any, data: Any) -> Any:
            x = keras.utils.unpack_x_y_sample_weight(data)[0]
            return self.model.stateless_call(state[0], state[1], x, return_losses=True, **self.given())[2]

        of_weights = sum(weight.regularizer is not None for weight in self.model.trainable_weights)
        why = ""
        if type(self.model).test_step is not keras.Model.test_step:
            why = "the model has a test_step of its own"
        elif len(jax.eval_shape(added, state, data)) != of_weights:
            why = "its layers add losses of their own"
        if why:
            event = self.witness.event("does_not_fit", self.where, batch_of(data), way=Way(1))
            self.give_up(event, f"The batch cannot be evaluated in slices: {why}.")


@contextmanager
def answered(model: Any, outputs: Any) -> Iterator[None]:
    """Meanwhile a call of the model gives these outputs; what regularises its weights is computed as ever."""

    def given(trainable: Any, others: Any, *args: Any, return_losses: bool = False, **kwargs: Any) -> Any:
        if not return_losses:
            return outputs, others
        return outputs, others, weight_losses(model, trainable)

    model.__dict__["stateless_call"] = given
    try:
        yield
    finally:
        del model.__dict__["stateless_call"]


def weight_losses(model: Any, values: Any) -> list[Any]:
    """The regularisers of weights, which no call of the model is needed for."""
    import keras

    with keras.StatelessScope(state_mapping=list(zip(model.trainable_variables, values, strict=True))):
        return list(model._get_regularization_losses())


def rows_of(tree: Any, start: int, rows: int) -> Any:
    import jax

    return jax.tree_util.tree_map(lambda leaf: leaf[start : start + rows], tree)


def joined(parts: list[Any]) -> Any:
    import jax

    return jax.tree_util.tree_map(lambda *leaves: jax.numpy.concatenate(leaves), *parts)
