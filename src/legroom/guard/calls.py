"""TensorFlow functions of a batch, traced as Keras traces its own and then called with as little Python as possible.

Private names used, tested with TensorFlow 2.21.0 and Keras 3.15.1: `ConcreteFunction._call_flat` (the public call takes
three times as long), `EagerTensor._shape_tuple`, `Trainer._autoconvert_optionals` (how Keras passes missing labels).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from legroom.guard.loss_trackers import weighed_as_in_fit
from legroom.guard.snapshots import Held, hold
from legroom.guard.traced import allocated_bytes, written_variables

LAYOUT = "legroom_layout"  # on a traced graph: what its caller has learnt while it was traced


@dataclass
class Call:
    """One traced function. `shared_bytes` is what an update that follows assigns, too, once that is known."""

    concrete: Any
    shared_bytes: int | None = None

    def __call__(self, leaves: list[Any]) -> Any:
        return self.concrete._call_flat(leaves, self.concrete.captured_inputs)

    @property
    def layout(self) -> Any:
        return getattr(self.concrete.graph, LAYOUT, None)

    @cached_property
    def written(self) -> list[Any]:
        return written_variables(self.concrete)

    @cached_property
    def allocated_bytes(self) -> int:
        return allocated_bytes(self.concrete.graph)

    def hold(self) -> Held:
        """What the variables that it assigns are now."""
        return hold(self.written)


@dataclass
class Traced:
    """A function of a batch. Each new kind of batch is traced, the second one with sizes left open, as Keras does it."""

    function: Callable[[Any], Any]
    jit_compile: bool = False
    known: dict[Any, Call] = field(default_factory=dict)
    model: Any = None  # whose losses are logged

    @cached_property
    def traced(self) -> Any:
        import tensorflow as tf

        plain = tf.autograph.experimental.do_not_convert(self.function)
        return tf.function(plain, reduce_retracing=True, jit_compile=self.jit_compile)

    def prepare(self, data: Any) -> tuple[Call, list[Any]]:
        """The function for this batch, traced if need be, and the tensors to call it with."""
        import tensorflow as tf

        leaves = tf.nest.flatten(data)
        try:
            key: Any = tuple(None if leaf is None else (leaf._shape_tuple(), leaf.dtype) for leaf in leaves)
        except AttributeError:  # arrays, ragged and sparse tensors, Keras' missing values
            data = as_tensors(data)
            leaves = tf.nest.flatten(data, expand_composites=True)
            key = (
                str(
                    tf.nest.map_structure(tf.type_spec_from_value, [x for x in tf.nest.flatten(data) if x is not None])
                ),
            )
        call = self.known.get(key)
        if call is None:
            with weighed_as_in_fit(self.model):
                call = self.known[key] = Call(self.traced.get_concrete_function(data))
        return call, [leaf for leaf in leaves if leaf is not None]


def as_tensors(data: Any) -> Any:
    """The batch as Keras hands it to a step."""
    import keras
    import tensorflow as tf

    def one(leaf: Any) -> Any:
        if leaf is None or isinstance(leaf, tf.experimental.Optional):
            return None
        return leaf if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor) else tf.convert_to_tensor(leaf)

    return keras.tree.map_structure(one, data)


def note_layout(layout: Any) -> None:
    """Keep what was learnt with the graph that is being traced."""
    import tensorflow as tf

    setattr(tf.compat.v1.get_default_graph(), LAYOUT, layout)


def batch_of(data: Any) -> int | None:
    """How many samples a batch has."""
    import keras

    for leaf in keras.tree.flatten(data):
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape):
            return None if shape[0] is None else int(shape[0])
    return None
