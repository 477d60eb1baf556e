"""When TensorFlow runs a recomputed block again: not before the gradients that arrive, and not while the block after it still needs its own.

Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.ops.control_flow_util.GraphOrParentsInXlaContext`,
`tensorflow.compiler.tf2xla.ops.gen_xla_ops.xla_optimization_barrier`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any


def after(upstream: Iterable[Any], tensors: Sequence[Any]) -> list[Any]:
    """The same tensors, but not before the gradients that arrive: the second run can neither start early nor be merged with the first."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return [tf.identity(tensor) for tensor in tensors]
    present = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in upstream if grad is not None]
    arrived = [grad for grad in present if grad.dtype.is_floating or grad.dtype.is_complex]
    if in_xla():
        return barrier(arrived, tensors)
    with tf.control_dependencies(arrived):
        return [tf.identity(tensor) for tensor in tensors]


def not_before(inputs: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The block's state, its seeds only when the inputs are there: or a free thread draws every block's random numbers at the start."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return [tf.identity(value) for value in values]
    if in_xla():
        return list(values)
    with tf.control_dependencies(inputs):
        return [tf.identity(value) if value.dtype.is_integer else value for value in values]


def last(inputs: list[Any], weights: Iterable[Any]) -> list[Any]:
    """The gradients of a block's inputs, handed on when its weights have theirs.

    Otherwise the block before runs again while this one's activations still wait for a thread that makes gradients of weights of them.
    """
    import tensorflow as tf

    if tf.executing_eagerly() or in_xla():
        return inputs
    made = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in weights if grad is not None]
    with tf.control_dependencies(made):
        return [None if grad is None else tf.identity(grad) for grad in inputs]


def in_xla() -> bool:
    import tensorflow as tf

    control_flow = importlib.import_module("tensorflow.python.ops.control_flow_util")
    return bool(control_flow.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def barrier(arrived: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    """XLA's optimisation barrier, which XLA:CPU drops before it schedules: so numbers and seeds also get a zero made from the gradients."""
    import tensorflow as tf

    make = importlib.import_module("tensorflow.compiler.tf2xla.ops.gen_xla_ops").xla_optimization_barrier

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def pass_through(*inner: Any) -> Any:
        passed = make(list(inner) + list(arrived))[: len(inner)]
        return passed, lambda *upstream: list(upstream)  # the barrier has no gradient of its own

    firsts = [tf.cast(tf.reduce_max(tf.math.real(tf.reshape(grad, [-1])[:1])), tf.bool) for grad in arrived]
    flag = tf.reduce_any(tf.stack(firsts))
    zero = tf.where(flag == flag, 0.0, float("nan"))  # noqa: PLR0124 (as in tf.recompute_grad: XLA does not see that it is 0)
    return [
        tensor if tensor.dtype.is_bool else tensor + tf.cast(zero, tensor.dtype) for tensor in pass_through(*tensors)
    ]
