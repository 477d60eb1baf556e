"""A slice of a training step, run only to see what it does: no weight is updated, and what is assigned is put back.

Random numbers are alike for all samples and the same in every trial, and layers that take statistics of their batch use
those that they have stored, so that what is left to differ between a batch and its slices is how the step adds samples up.

Private names used, tested with Keras 3.15.1 and TensorFlow 2.21.0: `GradientTape._recording`, `Optimizer._trainable_variables`.
"""

import sys
from types import FrameType
from typing import Any

from legroom.changes.custom_digest import digest_of
from legroom.changes.custom_flow import Flow, Source
from legroom.changes.custom_hooks import ASSIGNS, Call
from legroom.changes.custom_models import native, same_for
from legroom.changes.custom_run import Kinds, Run, cannot, default_graph, of_variables, state_owner
from legroom.changes.custom_seen import Known, Seen
from legroom.changes.known_layers import statistics_reason
from legroom.changes.lookups import entries_of
from legroom.changes.sparse import plain
from legroom.errors import InputError

NOTHING = Kinds((), (), ())
ASKING = (
    *("legroom.changes.custom_trial", "legroom.changes.custom_hooks", "tensorflow.python.ops.cond"),
    *(
        "tensorflow.python.util.dispatch",
        "tensorflow.python.util.deprecation",
        "tensorflow.python.util.traceback_utils",
        "keras.src.ops.core",
        "keras.src.backend.tensorflow.core",
        "keras.src.utils.traceback_utils",
    ),
)
OTHER_GRADIENTS = (
    "changes its gradients, before it applies them, by something else than the gradients themselves",
    "Let nothing but gradients and constants decide, not the size of the batch or its samples.",
)
VECTORIZED = "tensorflow.python.ops.parallel_for"  # traces whatever it maps over, and refuses to run it
HALF = ("float16", "bfloat16")


class Trial(Run):
    """A whole batch; a slice before the last, which assigns nothing; or, with `totals`, the last, its gradients those of all."""

    def __init__(
        self, known: Known, flow: Flow, *, early_slice: bool, totals: Any = None, flipped: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(NOTHING, 1.0, totals=totals)
        self.known = known
        self.flow = flow
        self.seen = Seen()
        self.tapes: list[Any] = []
        self.updates = False
        self.inside: list[Any] = []
        self.early_slice = early_slice
        self.flipped = flipped
        self.lent: list[tuple[Any, Any]] = []  # the values of what was assigned, to be put back
        self.fresh: dict[int, Any] = {}  # assigned, but not yet for slices before the last
        self.met: dict[int, str] = {}  # what the step has done with variables, not yet updated by their metric

    def gradient(self, call: Call, tape: Any, target: Any, sources: Any) -> Any:
        import tensorflow as tf

        found = self.plain_gradient(call)
        if self.differentiating or not of_variables(sources):
            return found
        self.happened()
        self.check_unchanged(target)
        if default_graph() is not None:
            self.refuse("takes its gradients inside a function that cannot be run eagerly, such as tape.jacobian's")
        if any(other is not tape and other._recording for other in self.tapes):
            raise cannot("takes the gradient of a gradient")
        for variable in map(native, tf.nest.flatten(sources)):
            if same_for(variable) not in self.known.before:
                self.known.before[same_for(variable)] = (variable, variable.numpy())
        flat = tf.nest.flatten(found)
        self.asked += 1
        self.seen.gradients.append([digest_of(leaf) for leaf in flat])
        self.seen.entries.append(entries_of(flat))
        self.seen.names.append([str(variable.name) for variable in tf.nest.flatten(sources)])
        if self.totals is None:
            self.gradients += flat
        given = flat if self.totals is None else [plain(next(self.tensors)) for _ in flat]
        self.flow.mark(given, Source.GRADIENTS)
        return tf.nest.pack_sequence_as(found, given)

    def opened(self, tape: Any) -> None:
        if not self.differentiating:
            self.tapes.append(tape)

    def apply(self, call: Call, optimizer: Any, gradients: Any, variables: Any) -> Any:
        self.happened()
        self.known.scalars.is_of(optimizer)
        given = list(gradients)
        if self.totals is not None and any(self.flow.of(leaf) & Source.SAMPLES for leaf in given):
            raise cannot(*OTHER_GRADIENTS)
        self.seen.applied.append([digest_of(leaf) for leaf in given])
        self.updates = True
        changed = optimizer._trainable_variables if variables is None else list(variables)
        if not optimizer.built:
            self.known.unbuilt[id(optimizer)] = (optimizer, changed)
        self.flow.change(changed)
        self.flow.mark(optimizer.variables, Source.CHANGED)

    def assign(self, call: Call, variable: Any, name: str, values: tuple[Any, ...]) -> Any:
        import keras

        owner = state_owner()
        if isinstance(owner, keras.Layer):
            self.known.reasons[f"{owner.name} changes its state from slice to slice"] = None
        elif is_metrics(owner) and name in ASSIGNS and default_graph() is None:
            held, given = whole_of(variable), whole_of(values[0])
            after = {"assign": given, "assign_add": held + given, "assign_sub": held - given}[name]
            self.seen.counted.append((owner.name, held, after))
            self.seen.adding.append(adds_up(owner))
            self.known.counts[same_for(variable)] = variable
            if same_for(variable) in self.met:
                raise met_before(self.met[same_for(variable)], owner.name)
        if is_metrics(owner):
            self.check_unchanged(values)
        if owner is not None:
            return variable
        self.happened()
        self.met[same_for(variable)] = "sets"
        self.known.scalars.is_moved(variable)
        if not self.early_slice and same_for(variable) not in self.fresh:
            self.lent.append((variable, variable.numpy()))
        if self.totals is not None and any(self.flow.of(value) & Source.SAMPLES for value in values):
            raise assigns_samples(variable.name)
        self.fresh[same_for(variable)] = variable
        self.seen.assigned.append((variable.name, [digest_of(value) for value in values if is_value(value)]))
        made = variable if self.early_slice else call()
        self.flow.change([variable])
        return made

    def read(self, variable: Any) -> None:
        self.known.scalars.is_read(variable)
        if same_for(variable) not in self.met and not is_metrics(state_owner()):
            self.met[same_for(variable)] = "reads"

    def scalar(self, call: Call, metric: Any, value: Any, weight: Any) -> Any:
        self.happened()
        self.check_unchanged((value, weight))
        self.seen.scalars += [whole_of(value), None if weight is None else whole_of(weight)]
        self.seen.of_slice["scalars"] += [self.flow.of_slice(value), self.flow.of_slice(weight)]

    def function(self, call: Call, function: Any, args: Any, kwargs: Any) -> Any:
        if function.python_function.__module__.startswith(VECTORIZED):
            return call()
        self.inside.append(function)
        try:
            return function.python_function(*args, **kwargs)
        finally:
            self.inside.pop()

    def layer(self, call: Call, layer: Any) -> Any:
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
        if not any(function._jit_compile for function in self.inside):  # or both its calls would draw the same
            self.happened()
        number = len(self.seen.sizes)
        self.seen.sizes.append(int(drawn.shape[0]) if drawn.shape.rank else 0)
        sources = self.flow.of(drawn)
        if not sources & (Source.ANEW | Source.SAMPLES):
            self.seen.repeated.append(tuple(drawn.shape))
        row = self.known.draws.get(number)
        if row is None or row.shape[1:] != drawn.shape[1:] or row.dtype != drawn.dtype:
            row = self.known.draws[number] = drawn[:1] if drawn.shape.rank else drawn
        alike = tf.broadcast_to(row, drawn.shape) if drawn.shape.num_elements() else drawn
        self.flow.mark([alike], Source.DRAWN | sources & Source.ANEW)
        return alike

    def seed(self, call: Call) -> Any:
        """Of Keras', which each slice moves on."""
        made = call()
        if default_graph() is None:
            self.flow.mark([made], self.flow.of(made) | Source.ANEW)
        return made

    def scale(self, call: Call, loss: Any) -> Any:
        """A factor for float16, which would make made-up data overflow."""
        return loss

    def returned(self, outputs: Any) -> Any:
        import tensorflow as tf

        leaves = tf.nest.flatten(outputs)
        self.check_unchanged(leaves)
        self.seen.outputs = [whole_of(leaf) if is_value(leaf) else leaf for leaf in leaves]
        self.seen.of_slice["outputs"] = [self.flow.of_slice(leaf) for leaf in leaves]

    def truth(self, call: Call, tensor: Any) -> bool:
        if default_graph() is not None or not asked_by_user():
            return bool(call())
        sources = self.flow.of(tensor)
        if sources & (Source.SAMPLES | Source.SIZES):
            raise cannot(
                "decides by the samples of the batch what it does, and would decide anew for each slice",
                "Decide for each sample, by tf.where, or by the gradients.",
            )
        return self.turned(bool(call())) if not sources else bool(call())

    def switch(self, call: Call, tensor: Any) -> bool:
        """What bends at a number of the samples is found out by `bends`."""
        if default_graph() is not None or self.flow.of(tensor) or not asked_by_user():
            return bool(call())
        return self.turned(bool(call()))

    def turned(self, truth: bool) -> bool:
        """A truth that no sample decides, which may be made to come out otherwise."""
        self.seen.truths.append(truth)
        return truth != (len(self.seen.truths) - 1 in self.flipped)

    def happened(self) -> None:
        """The functions that are being run cannot be traced by themselves."""
        self.known.inlined += [function for function in self.inside if function not in self.known.inlined]

    def put_back(self) -> None:
        while self.lent:
            variable, value = self.lent.pop()
            variable.assign(value)

    def check_unchanged(self, values: Any) -> None:
        """Samples that have met a weight after its update, or a variable that was assigned, have not in slices before the last."""
        import tensorflow as tf

        if not any(self.flow.computes_again(leaf) for leaf in tf.nest.flatten(values)):
            return
        if self.updates:
            raise cannot(
                "updates weights and computes with them again in the same call",
                "Make it two functions, one for each update, and split both.",
            )
        names = [variable.name for variable in self.fresh.values()]
        raise cannot(
            f"assigns the variable {names[0]!r} and computes gradients or values with it in the same call",
            "Assign it outside the step, or when the gradients have been taken.",
        )


def is_metrics(owner: Any) -> bool:
    import keras

    return isinstance(owner, keras.metrics.Metric)


def asked_by_user() -> bool:
    """Whether the truth that is asked for is for an `if` in code that is neither Keras' nor TensorFlow's; `tf.cond` asks for its caller."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")) in ASKING:
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] not in (
        "keras",
        "tensorflow",
    )


def met_before(what: str, name: str) -> InputError:
    return cannot(
        f"{what} the metric {name!r} before it updates it, where each slice would find the samples of those before it",
        "Reset metrics outside the step, and read them after their update; keep what the next step needs in a variable.",
    )


def assigns_samples(name: str) -> InputError:
    return cannot(
        f"assigns to the variable {name!r} what depends on the samples of the batch",
        "Use a Keras metric for what is summed over batches, or assign it outside the step.",
    )


def adds_up(metric: Any) -> bool:
    """Whether it is a sum or a mean as Keras has them, which keeps no largest number."""
    import keras

    plain = (keras.metrics.Mean.update_state, keras.metrics.Sum.update_state)
    return getattr(type(metric), "update_state", None) in plain


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
