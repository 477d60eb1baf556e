"""The optimizer's update from held gradients, all or nothing.

Before it the allocator is asked for as much as all ops of the update could take together. Where it has that, the update runs as
one graph and cannot run out of memory. Where it has not, weights and slots are copied to the host, the update is tried, then
op by op, which takes the least; and if even that fails they are put back, in place.

Private names used, tested with Keras 3.15.1: `Optimizer._trainable_variables`,
`Optimizer._learning_rate`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from legroom.engines.out_of_memory import is_oom
from legroom.guard.calls import Call
from legroom.guard.forgetting import forget
from legroom.guard.holding import Held
from legroom.guard.room import Room
from legroom.guard.snapshots import Copied, copy, size_of

Kind = Literal["dense", "sparse", "none"]


class UpdateFailed(Exception):
    """Memory ran out, and weights and slots are as before."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error: BaseException | None = error


@dataclass(frozen=True)
class Layout:
    """What kind of gradient each variable has. `variables` is None where the optimizer knows them."""

    kinds: tuple[Kind, ...]
    variables: tuple[Any, ...] | None
    updates: bool = True

    def __hash__(self) -> int:
        return hash((self.kinds, self.updates))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout) or (self.kinds, self.updates) != (other.kinds, other.updates):
            return False
        mine, others = self.variables, other.variables
        if mine is None or others is None:
            return mine is others
        return len(mine) == len(others) and all(a is b for a, b in zip(mine, others, strict=True))


@dataclass(frozen=True)
class Gradients:
    """The tensors of all gradients, one after the other; a sparse one has two."""

    layout: Layout
    tensors: Sequence[Any]


def attempt(before: Copied, update: Callable[[], Any]) -> BaseException | None:
    """Update, or put everything back; the error if memory ran out."""
    try:
        before.keep_a_way()
    except BaseException as error:
        if is_oom(error):
            return error
        raise
    try:
        update()
    except BaseException as error:
        before.put_back()
        if is_oom(error):
            return error
        raise
    return None


def flat_gradients(held: Held) -> tuple[Layout, list[Any]]:
    """What a step gave to its optimizer, as tensors and what they are."""
    import tensorflow as tf

    kinds: list[Kind] = []
    tensors: list[Any] = []
    for gradient in held.gradients:
        if gradient is None:
            kinds.append("none")
        elif isinstance(gradient, tf.IndexedSlices):
            kinds.append("sparse")
            tensors += [gradient.values, gradient.indices]
        else:
            kinds.append("dense")
            tensors.append(tf.convert_to_tensor(gradient))
    variables = None if held.variables is None else tuple(held.variables)
    return Layout(tuple(kinds), variables, held.calls > 0), tensors


@dataclass
class Update:
    """One model's update, and how often it had to be done the careful way."""

    model: Any
    room: Room
    noted: Callable[[BaseException], None] = lambda error: None  # told of each failure before it is dealt with
    calls: dict[Layout, Call] = field(default_factory=dict)
    careful: int = 0
    too_full_bytes: int | None = None  # in use the last time that the graph did not fit: it is not tried again then

    def variables(self, layout: Layout) -> list[Any]:
        """What the optimizer changes, TensorFlow's own: weights, slots and counters."""
        weights = self.model.trainable_variables if layout.variables is None else layout.variables
        rate = getattr(self.model.optimizer, "_learning_rate", None)  # read by it, never changed
        slots = [variable for variable in self.model.optimizer.variables if variable is not rate]
        return [getattr(variable, "value", variable) for variable in (*weights, *slots)]

    def shared_bytes(self, call: Call) -> int:
        """Of what the gradient pass and the update both assign: held from before the first, it is copied by the second."""
        if call.shared_bytes is None:
            written = {id(variable) for variable in call.written}
            call.shared_bytes = size_of([one for one in self.variables(call.layout) if id(one) in written])
        return call.shared_bytes

    def __call__(self, gradients: Gradients, beside_bytes: int = 0) -> None:
        """Update, or raise UpdateFailed with everything as it was. `beside_bytes` is what it must copy as others hold it."""
        if not gradients.layout.updates:
            return
        call = self.calls.get(gradients.layout)
        if call is None:
            call = self.calls[gradients.layout] = self.traced(gradients)
        if self.room.has(self.need_bytes(call, gradients) + beside_bytes):
            call(list(gradients.tensors))
        else:
            self.update_carefully(call, gradients)

    def need_bytes(self, call: Call, gradients: Gradients) -> int:
        """At most what the update allocates, as if nothing of it were freed."""
        need = call.allocated_bytes
        if "sparse" in gradients.layout.kinds:  # how many rows there are shows in each batch anew
            rows = sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in gradients.tensors)
            need += 8 * rows
        return need

    def update_carefully(self, call: Call, gradients: Gradients) -> None:
        """With a copy on the host: as a graph, else op by op."""
        self.careful += 1
        before = copy(call.written)
        used = self.room.in_use_bytes()
        if self.too_full_bytes is None or used is None or used < self.too_full_bytes:
            error = attempt(before, lambda: call(list(gradients.tensors)))
            if error is None:
                return
            self.too_full_bytes = used
            self.noted(error)
            forget(error)
            del error
        failed = attempt(before, lambda: self.apply(gradients.layout, gradients.tensors))
        if failed is not None:
            raise UpdateFailed(failed)

    def apply(self, layout: Layout, tensors: Sequence[Any]) -> None:
        """The optimizer's own update."""
        variables = layout.variables or self.model.optimizer._trainable_variables
        gradients = self.unflattened(layout, variables, tensors)
        self.model.optimizer.apply(gradients, None if layout.variables is None else list(layout.variables))

    def unflattened(self, layout: Layout, variables: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
        """The gradients of these variables."""
        import tensorflow as tf

        given = iter(tensors)
        gradients: list[Any] = []
        for kind, variable in zip(layout.kinds, variables, strict=True):
            if kind == "sparse":
                gradients.append(tf.IndexedSlices(next(given), next(given), tf.constant(list(variable.shape))))
            else:
                gradients.append(next(given) if kind == "dense" else None)
        return gradients

    def build(self, layout: Layout) -> bool:
        """Slots are made now if they are not yet; whether they were."""
        if self.model.optimizer.built:
            return False
        self.model.optimizer.build(list(layout.variables or self.model.trainable_variables))
        return True

    def traced(self, gradients: Gradients) -> Call:
        """The update as a graph, or UpdateFailed where there is no room for the optimizer's slots."""
        try:
            return self.trace(gradients)
        except BaseException as error:
            if is_oom(error):
                raise UpdateFailed(error) from None
            raise

    def trace(self, gradients: Gradients) -> Call:
        """The update as a graph."""
        import tensorflow as tf

        layout = gradients.layout
        self.build(layout)
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in gradients.tensors]
        at = 0
        for kind in layout.kinds:
            if kind == "sparse":
                specs[at : at + 2] = [tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) for spec in specs[at : at + 2]]
            at += {"sparse": 2, "dense": 1, "none": 0}[kind]

        def update(*tensors: Any) -> None:
            self.apply(layout, tensors)

        traced = tf.function(tf.autograph.experimental.do_not_convert(update))
        return Call(traced.get_concrete_function(*specs))
