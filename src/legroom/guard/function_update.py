"""The updates of a training step that the user wrote: held back while it runs, and made afterwards, all of them or none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from legroom.changes.custom_models import native
from legroom.changes.custom_run import default_graph
from legroom.guard.holding import Held as HeldBack
from legroom.guard.snapshots import Held
from legroom.guard.update import Layout, Update, flat_gradients


@dataclass(frozen=True, eq=False)
class FunctionLayout(Layout):
    """The gradients of several updates, one after the other: each with its optimizer and how many variables are its."""

    optimizers: tuple[tuple[Any, int], ...] = ()

    __hash__ = Layout.__hash__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FunctionLayout) or not super().__eq__(other):
            return False
        mine, others = self.optimizers, other.optimizers
        return len(mine) == len(others) and all(
            one is another and count == counted for (one, count), (another, counted) in zip(mine, others, strict=True)
        )


class JointUpdate(Update):
    """Of all optimizers that a step applies."""

    def variables(self, layout: Any) -> list[Any]:
        rates = {id(getattr(optimizer, "_learning_rate", None)) for optimizer, _ in layout.optimizers}
        slots = [slot for optimizer, _ in layout.optimizers for slot in optimizer.variables if id(slot) not in rates]
        return [native(variable) for variable in (*(layout.variables or ()), *slots)]

    def apply(self, layout: Any, tensors: Sequence[Any]) -> None:
        gradients = self.unflattened(layout, layout.variables, tensors)
        start = 0
        for optimizer, count in layout.optimizers:
            optimizer.apply(gradients[start : start + count], list(layout.variables[start : start + count]))
            start += count

    def build(self, layout: Any) -> bool:
        """Make slots where there are none, named as by the optimizer itself; whether there were some to make."""
        import keras

        made, start = False, 0
        for optimizer, count in layout.optimizers:
            if not optimizer.built:
                with keras.name_scope(optimizer.name, caller=optimizer):
                    optimizer.build(list(layout.variables[start : start + count]))
                made = True
            start += count
        return made


@dataclass
class Kept:
    """What one run of a step wanted to apply. It holds what is assigned before it is, where that is not read from a graph."""

    eager: bool
    at_update: Callable[[], int] = lambda: 0
    optimizers: list[tuple[Any, int]] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    variables: list[Any] = field(default_factory=list)
    marks: list[tuple[int, list[Any]]] = field(default_factory=list)  # ops that there were, and what was updated then
    updated: dict[int, Any] = field(default_factory=dict)
    before: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    graph: Any = None  # that the step is traced in
    uses_again: bool = False  # reads or assigns what it has told an optimizer to update
    elsewhere: bool = False  # updates in another graph, of a condition or a loop

    def applied(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        self.elsewhere = self.elsewhere or default_graph() is not self.graph
        own = list(optimizer._trainable_variables if variables is None else variables)
        given = list(gradients)
        self.optimizers.append((optimizer, len(own)))
        self.gradients += given
        self.variables += own
        changed = [native(variable) for variable in (*own, *optimizer.variables)]
        self.marks.append((self.at_update(), changed))
        self.updated.update({id(variable): variable for variable in changed})

    def assigned(self, variable: Any) -> None:
        import tensorflow as tf

        self.note_use(variable)
        if self.eager and tf.executing_eagerly() and id(variable) not in self.before:
            value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
            self.before[id(variable)] = (variable, value)

    def read(self, variable: Any) -> None:
        self.note_use(variable)

    def note_use(self, variable: Any) -> None:
        self.uses_again = self.uses_again or id(native(variable)) in self.updated

    def held(self) -> Held:
        """What was assigned, as it was before."""
        pairs = list(self.before.values())
        return Held([variable for variable, _ in pairs], [tensor for _, tensor in pairs])

    def flat(self) -> tuple[FunctionLayout, list[Any]]:
        layout, tensors = flat_gradients(HeldBack(self.gradients, self.variables, len(self.optimizers)))
        return FunctionLayout(layout.kinds, layout.variables, layout.updates, tuple(self.optimizers)), tensors
