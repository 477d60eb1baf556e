"""A slice of a training step, run only to see what it does: no weight is updated, and what is assigned is put back.

Random numbers are alike for all samples and the same in every trial, and layers that take statistics of their batch use
those that they have stored, so that what is left to differ between a batch and its slices is how the step adds samples up.

Private names used, tested with Keras 3.15.1 and TensorFlow 2.21.0: `GradientTape._recording`, `Optimizer._trainable_variables`.
"""

from dataclasses import dataclass, field
from typing import Any

from legroom.changes.custom_digest import digest_of
from legroom.changes.custom_hooks import Call
from legroom.changes.custom_models import native
from legroom.changes.custom_run import Kinds, Run, cannot, default_graph, of_variables, state_owner
from legroom.changes.microbatch_samples import statistics_reason

NOTHING = Kinds((), (), ())
HALF = ("float16", "bfloat16")


@dataclass
class Known:
    """What all trials of a step have found out together."""

    draws: dict[int, Any] = field(default_factory=dict)
    before: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # trained variables, and their values
    reasons: dict[str, None] = field(default_factory=dict)
    inlined: list[Any] = field(default_factory=list)
    built: bool = False  # what is made at a step's first call gets its own random numbers
    random: bool = False
    half: bool = False


@dataclass
class Seen:
    """What one trial did: gradients and updates as digests, numbers and outputs as arrays."""

    gradients: list[list[Any]] = field(default_factory=list)
    scalars: list[Any] = field(default_factory=list)  # two for each number: its weight's too, or None
    counted: list[tuple[str, Any, Any]] = field(default_factory=list)  # what metrics held, and what it became
    outputs: list[Any] = field(default_factory=list)
    applied: list[list[Any]] = field(default_factory=list)
    assigned: list[tuple[str, list[Any]]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # first dimensions of what was drawn at random

    def outline(self) -> Any:
        """What a batch and its slices have in common."""
        gradients = [[entry is None for entry in entries] for entries in self.gradients]
        return gradients, len(self.scalars), len(self.outputs)

    def updates(self) -> tuple[int, int]:
        """How often it updates something: so does the last slice, the ones before it may find other gradients and not."""
        return len(self.applied), len(self.assigned)

    def finite(self) -> bool:
        import numpy as np

        each = [entry for entries in self.gradients for entry in entries if entry is not None]
        return all(bool(np.all(np.isfinite(entry))) for entry in each)


class Trial(Run):
    """A whole batch; a slice before the last, which assigns nothing; or, with `totals`, the last, its gradients those of all."""

    def __init__(self, known: Known, *, early_slice: bool, totals: Any = None) -> None:
        super().__init__(NOTHING, 1.0, totals=totals)
        self.known = known
        self.seen = Seen()
        self.tapes: list[tuple[Any, set[int]]] = []
        self.updated: set[int] = set()
        self.inside: list[Any] = []
        self.early_slice = early_slice
        self.lent: list[tuple[Any, Any]] = []  # the values of what was assigned, to be put back
        self.fresh: dict[int, Any] = {}  # assigned, but not yet for slices before the last
        self.stale: list[str] = []  # of these, the names of those that were read

    def gradient(self, call: Call, tape: Any, sources: Any) -> Any:
        import tensorflow as tf

        found = self.plain_gradient(call)
        if self.differentiating or not of_variables(sources):
            return found
        self.happened()
        if self.stale:
            raise self.computes_again()
        if default_graph() is not None:
            raise cannot("takes its gradients inside a function that cannot be run eagerly")
        if any(other is not tape and other._recording for other, _ in self.tapes):
            raise cannot("takes the gradient of a gradient")
        changed = next((before for other, before in self.tapes if other is tape), set())
        if changed & {id(variable) for variable in tape.watched_variables()}:
            raise self.computes_again()
        for variable in map(native, tf.nest.flatten(sources)):
            if id(variable) not in self.known.before:
                self.known.before[id(variable)] = (variable, variable.numpy())
        flat = tf.nest.flatten(found)
        self.asked += 1
        self.seen.gradients.append([digest_of(leaf) for leaf in flat])
        if self.totals is None:
            self.gradients += flat
            return found
        return tf.nest.pack_sequence_as(found, [next(self.tensors) for _ in flat])

    def opened(self, tape: Any) -> None:
        if not self.differentiating:
            self.tapes.append((tape, self.updated | set(self.fresh)))

    def apply(self, call: Call, optimizer: Any, gradients: Any, variables: Any) -> Any:
        self.happened()
        given = list(gradients)
        self.seen.applied.append([digest_of(leaf) for leaf in given])
        self.updated |= {id(native(one)) for one in variables or optimizer._trainable_variables}

    def assign(self, call: Call, variable: Any, name: str, values: tuple[Any, ...]) -> Any:
        import keras

        owner = state_owner()
        if isinstance(owner, keras.Layer):
            self.known.reasons[f"{owner.name} changes its state from slice to slice"] = None
        elif isinstance(owner, keras.metrics.Metric) and name in ("assign", "assign_add") and default_graph() is None:
            held, given = whole_of(variable), whole_of(values[0])
            self.seen.counted.append((owner.name, held, given if name == "assign" else held + given))
        if owner is not None:
            return variable
        self.happened()
        if not self.early_slice and id(variable) not in self.fresh:
            self.lent.append((variable, variable.numpy()))
        self.fresh[id(variable)] = variable
        self.seen.assigned.append((variable.name, [digest_of(value) for value in values if is_value(value)]))
        return variable if self.early_slice else call()

    def read(self, variable: Any) -> None:
        if id(variable) in self.fresh:
            self.stale.append(variable.name)

    def scalar(self, call: Call, value: Any, weight: Any) -> Any:
        self.happened()
        self.seen.scalars += [whole_of(value), None if weight is None else whole_of(weight)]

    def function(self, call: Call, function: Any, args: Any, kwargs: Any) -> Any:
        self.inside.append(function)
        try:
            return function.python_function(*args, **kwargs)
        finally:
            self.inside.pop()

    def layer(self, call: Call, layer: Any) -> Any:
        changed = self.updated | set(self.fresh)
        if changed and changed & {id(native(variable)) for variable in layer.variables}:
            raise self.computes_again()
        self.known.half = self.known.half or str(layer.compute_dtype) in HALF
        reason = statistics_reason(layer)
        if reason is None or "call" in vars(layer):
            return call()
        original = layer.call

        def stored(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("training"):
                self.known.reasons[reason] = None
                kwargs["training"] = False
            return original(*args, **kwargs)

        layer.call = stored
        try:
            return call()
        finally:
            del layer.call

    def random(self, call: Call) -> Any:
        import tensorflow as tf

        drawn = call()
        if default_graph() is not None or not self.known.built:
            return drawn
        self.known.random = True
        number = len(self.seen.sizes)
        self.seen.sizes.append(int(drawn.shape[0]) if drawn.shape.rank else 0)
        row = self.known.draws.get(number)
        if row is None or row.shape[1:] != drawn.shape[1:] or row.dtype != drawn.dtype:
            row = self.known.draws[number] = drawn[:1] if drawn.shape.rank else drawn
        return tf.broadcast_to(row, drawn.shape) if drawn.shape.num_elements() else drawn

    def scale(self, call: Call, loss: Any) -> Any:
        """A factor for float16, which would make made-up data overflow."""
        return loss

    def returned(self, outputs: Any) -> Any:
        import tensorflow as tf

        self.seen.outputs = [whole_of(leaf) if is_value(leaf) else leaf for leaf in tf.nest.flatten(outputs)]

    def happened(self) -> None:
        """The functions that are being run cannot be traced by themselves."""
        self.known.inlined += [function for function in self.inside if function not in self.known.inlined]

    def put_back(self) -> None:
        while self.lent:
            variable, value = self.lent.pop()
            variable.assign(value)

    def computes_again(self) -> Any:
        if self.updated:
            return cannot(
                "updates weights and computes with them again in the same call",
                "Make it two functions, one for each update, and split both.",
            )
        names = self.stale or [variable.name for variable in self.fresh.values()]
        return cannot(
            f"assigns the variable {names[0]!r} and computes gradients with it in the same call",
            "Assign it outside the step, or when the gradients have been taken.",
        )


def is_value(leaf: Any) -> bool:
    import numpy as np
    import tensorflow as tf

    return isinstance(leaf, tf.Tensor | tf.Variable | tf.IndexedSlices | np.ndarray | np.generic | bool | int | float)


def whole_of(leaf: Any) -> Any:
    """As NumPy, numbers in double, and one truth as it is: there is no half of it."""
    import numpy as np

    made = np.asarray(leaf)
    is_truth = made.dtype.kind == "b" and not made.ndim
    return made if is_truth or made.dtype.kind in "OSU" else made.astype("float64")
