"""One slice of a user's training step: its gradients are kept for the sum, and its updates wait for the last slice.

All slices but the last are `Early`: updates and assignments of the user's own are left out, those of layers (statistics,
seeds) and metrics are made. In the last one each gradient that is asked for is the whole batch's, so that whatever the step
does with it, such as clipping, is done once and to the right thing; all updates are made.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from legroom.capture.tf_step import written_function
from legroom.changes.custom_hooks import Call
from legroom.changes.custom_models import native, same_for, updates
from legroom.changes.custom_order import after_reads
from legroom.changes.custom_values import like, over, rows_of, times
from legroom.changes.microbatch_loop import Found, shaped
from legroom.changes.sparse import add_gradients, plain, scaled, with_tables
from legroom.errors import InputError
from legroom.records.plan import Exactness

AROUND_KERAS = re.compile(r"\A.*?\x1b\[1m(.*?)\x1b\[0m", re.DOTALL)
OTHERWISE = "Plan with something other than micro-batches."
UPDATE_ALWAYS = "Update them at every step, or return the number and decide outside the step."
UNKNOWN_SHAPE = (
    "returns a value whose shape is not known before it is computed, so that slices' values cannot be added up",
    "Give it its shape, as tf.ensure_shape(value, [10]), or leave it out.",
)
Kind = Literal[
    "mean", "sum", "samples", "last", "constant", "weighted"
]  # how the slices' values make the batch's; constant: as last; weighted: a mean with the weights beside them


@dataclass(frozen=True)
class Kinds:
    """What was found out about a step: for each gradient it takes, each number it gives a metric, each value it returns."""

    gradients: tuple[tuple[Kind, ...], ...]
    scalars: tuple[Kind, ...]  # two for each number: its weight's too
    outputs: tuple[Kind, ...]
    exactness: Exactness = "exact"
    reasons: tuple[str, ...] = ()
    tables: tuple[tuple[bool, ...], ...] = ()  # which gradients are of tables that are looked up alike for every batch
    inlined: tuple[Any, ...] = ()  # inner tf.functions that take gradients or update: they are run as part of the step


class Keeper(Protocol):
    """Who holds a step's updates back, and wants to know of every variable before it is assigned, and when it is read."""

    def applied(self, optimizer: Any, gradients: Any, variables: Any) -> None: ...

    def assigned(self, variable: Any) -> None: ...

    def read(self, variable: Any) -> None: ...


@dataclass
class Run:
    """What every slice does. `totals` are the sums over the slices before, for the last one."""

    kinds: Kinds
    fraction: Any
    autograph: bool = False
    totals: Found | None = None
    keeper: Keeper | None = None
    gradients: list[Any] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    sums: list[Any] = field(default_factory=list)
    taken: list[Any] = field(default_factory=list)  # the whole batch's gradients so far
    asked: int = 0
    numbers: int = 0
    error: InputError | None = None
    differentiating: int = 0
    updating: bool = False
    held: dict[int, Any] | None = None  # variables that this slice assigns, with their values before

    def __post_init__(self) -> None:
        found = self.totals or Found(())
        self.tensors: Iterator[Any] = iter(found.gradients)
        self.scalars: Iterator[Any] = iter(found.sums)
        self.graph = default_graph()

    @property
    def early(self) -> bool:
        return self.totals is None

    def gradient(self, call: Call, tape: Any, target: Any, sources: Any) -> Any:
        import tensorflow as tf

        found = self.plain_gradient(call)
        if self.differentiating or not of_variables(sources):
            return found
        if default_graph() is not self.graph:
            self.refuse("takes its gradients inside a loop, a condition or a function of its own")
        if self.asked >= len(self.kinds.gradients):
            self.refuse("takes more gradients than it did when it was tried out")
        kinds, tables = self.kinds.gradients[self.asked], self.kinds.tables[self.asked]
        self.asked += 1
        leaves = map(shaped, tf.nest.flatten(found), tf.nest.flatten(sources))
        shares = [
            share(g, kind, self.fraction) for g, kind in zip(with_tables(list(leaves), tables), kinds, strict=True)
        ]
        if self.early:
            self.gradients += shares
            return found
        totals = [plain(add_gradients(next(self.tensors), own)) for own in shares]
        self.taken += totals
        return tf.nest.pack_sequence_as(found, totals)

    def plain_gradient(self, call: Call) -> Any:
        """As the tape has it. Blocks that are recomputed open tapes of their own meanwhile, which are none of the step's."""
        self.differentiating += 1
        try:
            return call()
        finally:
            self.differentiating -= 1

    def opened(self, tape: Any) -> None:
        """Nothing to do."""

    def apply(self, call: Call, optimizer: Any, gradients: Any, variables: Any) -> Any:
        if self.early:
            return None
        if self.keeper is None:
            return self.update(
                call, list(gradients), optimizer._trainable_variables if variables is None else variables
            )
        try:
            return self.keeper.applied(optimizer, gradients, variables)
        except InputError as error:
            self.error = error  # AutoGraph wraps what it does not know
            raise

    def assign(self, call: Call, variable: Any, name: str, values: tuple[Any, ...]) -> Any:
        if self.early and state_owner() is None:
            return variable
        if self.held is not None and same_for(variable) not in self.held:
            self.held[same_for(variable)] = variable, copied(variable)
        if self.keeper is not None:
            self.keeper.assigned(variable)
        if self.updating or not (variable.dtype.is_floating or variable.dtype.is_integer) or state_owner() is not None:
            return call()
        return call(lambda value: after_reads([as_given(value, variable)], [variable], self.taken, self.graph)[0])

    def update(self, call: Call, gradients: list[Any], variables: Sequence[Any]) -> Any:
        """By the optimizer, which assigns in an order of its own."""
        self.updating = True
        try:
            return call(after_reads(gradients, map(native, variables), (*gradients, *self.taken), self.graph))
        finally:
            self.updating = False

    def read(self, variable: Any) -> None:
        if self.keeper is not None:
            self.keeper.read(variable)

    def scalar(self, call: Call, metric: Any, value: Any, weight: Any) -> Any:
        """A metric gets the whole batch's number, and its weight, once."""
        if default_graph() is not self.graph:
            self.refuse("gives a metric one number for the batch inside a condition or a loop", UPDATE_ALWAYS)
        if self.numbers >= len(self.kinds.scalars):
            self.refuse("gives metrics more numbers than it did when it was tried out", UPDATE_ALWAYS)
        kind, kind_of_weight = self.kinds.scalars[self.numbers : self.numbers + 2]
        self.numbers += 2
        weighted = kind == "weighted" and weight is not None
        total = self.so_far(times(value, weight) if weighted else value, kind)
        weights = self.so_far(weight, kind_of_weight)
        if self.early:
            return None
        return call(over(total, weights) if weighted else total, weights)

    def so_far(self, value: Any, kind: Kind) -> Any:
        """This slice's number with those before it."""
        import tensorflow as tf

        if kind == "last" or value is None:
            return value
        value = tf.convert_to_tensor(value)
        own = share(value if value.dtype.is_floating else tf.cast(value, tf.float64), kind, self.fraction)
        if self.early:
            self.sums.append(own)
            return own
        return self.before() + own

    def before(self) -> Any:
        """The sum of the slices before this one, which is the last."""
        found = next(self.scalars, None)
        if found is None:
            self.refuse("gives metrics other numbers in some slices than in others", UPDATE_ALWAYS)
        return found

    def function(self, call: Call, function: Any, args: Any, kwargs: Any) -> Any:
        if not any(function is known for known in self.kinds.inlined):
            return call()
        return converted(written_function(function), self.autograph)(*args, **kwargs)

    def layer(self, call: Call, layer: Any) -> Any:
        try:
            return call()
        except InputError as error:  # of layers that cannot be recomputed; Keras and AutoGraph write around it
            self.error = self.error or InputError(written_by_keras(error.message))
            raise

    def random(self, call: Call) -> Any:
        return call()

    seed = random

    def scale(self, call: Call, loss: Any) -> Any:
        return call()

    def truth(self, call: Call, tensor: Any) -> bool:
        return bool(call())

    switch = truth

    def returned(self, outputs: Any) -> Any:
        """What the step returned: kept for the sums, or, for the last slice, as it is for the whole batch."""
        import tensorflow as tf

        leaves = tf.nest.flatten(outputs)
        if self.asked != len(self.kinds.gradients) or len(leaves) != len(self.kinds.outputs):
            self.refuse("takes other gradients, or returns something else, than when it was tried out")
        made = [self.output(leaf, kind) for leaf, kind in zip(leaves, self.kinds.outputs, strict=True)]
        return tf.nest.pack_sequence_as(outputs, made)

    def output(self, leaf: Any, kind: Kind) -> Any:
        import tensorflow as tf

        if kind == "last" or leaf is None:  # the size of a batch that a graph does not know
            return leaf
        own = tf.constant(leaf, tf.float64) if isinstance(leaf, float) else tf.convert_to_tensor(leaf)
        if kind == "samples":
            own = rows_of(own)
            self.rows.append(own)
            return own if self.early else like(leaf, add_gradients(next(self.tensors), own).values)
        own = share(own, kind, self.fraction)
        if self.early and not own.shape.is_fully_defined():
            self.refuse(*UNKNOWN_SHAPE)
        self.sums.append(own)
        return own if self.early else like(leaf, self.before() + own)

    def found(self) -> Found:
        """What an early slice adds to the sums."""
        return Found((*self.gradients, *self.rows), tuple(self.sums))

    def refuse(self, why: str, hint: str = OTHERWISE) -> None:
        """Kept too: AutoGraph wraps what it does not know."""
        self.error = cannot(why, hint)
        raise self.error


class Whole(Run):
    """A batch in one piece: its updates go to the keeper, and nothing else is changed."""

    def __init__(self, keeper: Keeper, autograph: bool) -> None:
        super().__init__(Kinds((), (), ()), 1.0, autograph, Found(()), keeper)

    def gradient(self, call: Call, tape: Any, target: Any, sources: Any) -> Any:
        return call()

    def apply(self, call: Call, optimizer: Any, gradients: Any, variables: Any) -> Any:
        if default_graph() is not self.graph:
            self.error = InputError(
                "This training step updates weights inside a loop, a condition or a function of its own, where the update "
                "cannot be held back."
            )
            raise self.error
        return super().apply(call, optimizer, gradients, variables)

    def scalar(self, call: Call, metric: Any, value: Any, weight: Any) -> Any:
        return call(value, weight)

    def function(self, call: Call, function: Any, args: Any, kwargs: Any) -> Any:
        if self.graph is None or not updates(function):
            return call()
        return converted(written_function(function), self.autograph)(*args, **kwargs)

    def returned(self, outputs: Any) -> Any:
        return outputs


def written_by_keras(text: str) -> str:
    """The reason in what Keras makes of an exception in a layer."""
    found = AROUND_KERAS.search(text)
    return found[1].strip() if found else text


def cannot(why: str, hint: str = OTHERWISE) -> InputError:
    return InputError(f"This training step cannot be run in slices of the batch: it {why}.", hint)


def copied(variable: Any) -> Any:
    import tensorflow as tf

    return tf.raw_ops.DeepCopy(x=variable.read_value())


def as_given(value: Any, variable: Any) -> Any:
    import tensorflow as tf

    return value if isinstance(value, tf.IndexedSlices) else tf.convert_to_tensor(value, variable.dtype)


def share(value: Any, kind: Kind, fraction: Any) -> Any:
    """What a slice adds to the batch's value."""
    return scaled(value, fraction) if kind == "mean" else value


def of_variables(sources: Any) -> bool:
    """Gradients by data (a gradient penalty's) belong to their samples and are left alone."""
    import keras
    import tensorflow as tf

    leaves = tf.nest.flatten(sources)
    return bool(leaves) and all(isinstance(leaf, tf.Variable | keras.Variable) for leaf in leaves)


def default_graph() -> Any:
    import tensorflow as tf

    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def state_owner() -> Any:
    """The layer, metric or seed generator in whose code a variable is being assigned; None where it is the user's."""
    import keras

    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "run_slice":
        name, owner = frame.f_code.co_name, frame.f_locals.get(next(iter(frame.f_code.co_varnames), ""))
        if name == "__call__" and isinstance(owner, keras.Layer):
            return owner
        if "update_state" in name and isinstance(owner, keras.metrics.Metric):
            return owner
        if name == "next" and isinstance(owner, keras.random.SeedGenerator):
            return owner
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def converted(function: Any, autograph: bool) -> Any:
    """The function as `tf.function` would trace it, where it is being traced."""
    import tensorflow as tf
    from tensorflow.python.autograph.core.ag_ctx import ControlStatusCtx, Status

    if not autograph or tf.executing_eagerly():
        return function
    return tf.__internal__.autograph.tf_convert(function, ControlStatusCtx(status=Status.ENABLED), user_requested=True)
