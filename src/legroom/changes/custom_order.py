"""In the graph of a sliced step, weights change after whatever read them has run.

TensorFlow orders the two by control edges. Its optimiser takes one away where it finds another way from the read to the update, and then takes away a join that
this way went through: the IdentityN of all gradients that Keras' optimizers make (by a custom gradient), which becomes an edge for each gradient alone. So where
a thread comes late to a read, the weight may have changed: a critic's kernel was updated before the generator's gradient had read it. Data is not taken away, so
that what is assigned gets a zero added that needs an entry of whatever was read.

Tested with TensorFlow 2.21.0: `FuncGraph.capture` gives a variable's handle in the graph that is being made.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def after_reads(values: Sequence[Any], variables: Iterable[Any], others: Iterable[Any], top: Any) -> list[Any]:
    """The values, gradients or what is assigned, none of which is there before these variables' reads and the others have run. `top` is the step's graph."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return list(values)
    dense = [one for one in others if one is not None and not isinstance(one, tf.IndexedSlices)]
    known = [one for one in (*dense, *reads(variables, top)) if one.dtype.is_floating or one.dtype.is_integer]
    if not known:
        return list(values)
    zero = zero_after({one.name: one for one in known}.values())
    return [later(one, zero) for one in values]


def zero_after(tensors: Iterable[Any]) -> Any:
    """NaN does not get into it, and nothing folds it."""
    import tensorflow as tf

    entry = tf.reduce_sum(tf.concat([tf.cast(tf.reshape(one, [-1])[:1], tf.float32) for one in tensors], 0))
    return tf.cast(tf.cast(tf.equal(entry, entry), tf.float32) < -1.0, tf.float32)


def reads(variables: Iterable[Any], top: Any) -> Iterator[Any]:
    """What ops that take one of these variables give, in the graph that is being made and those around it, up to the step's."""
    import tensorflow as tf

    readers: dict[str, Any] = {}
    for variable in variables:
        graph = tf.compat.v1.get_default_graph()
        while graph is not None:
            readers |= {f"{id(graph)} {one.name}": one for one in graph.capture(variable.handle).consumers()}
            graph = None if graph is top else getattr(graph, "outer_graph", None)
    for reader in readers.values():
        yield from reader.outputs


def later(value: Any, zero: Any) -> Any:
    import tensorflow as tf

    if value is None:
        return None
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(later(value.values, zero), value.indices, value.dense_shape)
    return value + tf.cast(zero, value.dtype)
