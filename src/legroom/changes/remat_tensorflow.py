"""Recomputation on TensorFlow: a custom gradient that keeps a block's inputs and runs the block again under a tape of its own.

The second run waits for the incoming gradient (a control dependency; under XLA an optimisation barrier), or Grappler's and XLA's
common-subexpression elimination would merge it with the first. `tf.recompute_grad` does the same for functions without state.

Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.eager.record` (`stop_recording`, `could_possibly_record`,
`should_record_backprop`), `tensorflow.python.ops.control_flow_util.GraphOrParentsInXlaContext`,
`tensorflow.compiler.tf2xla.ops.gen_xla_ops.xla_optimization_barrier`, `Graph._get_function`,
`tensorflow.python.framework.op_def_registry`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from legroom.changes.host_random import generators_of, states_of
from legroom.changes.own_code import has_own_code
from legroom.changes.remat_block import Block, Ran
from legroom.changes.remat_outer import CALLS, nothing_from_outside, refuse_from_outside
from legroom.changes.remat_tapes import refuse_forward_mode
from legroom.errors import InputError

Arguments = tuple[list[Any], list[Any], list[Any]]

HARMLESS = {
    "VarHandleOp",
    "ReadVariableOp",
    "ResourceGather",
    "ResourceGatherNd",
    "VariableShape",
    "VarIsInitializedOp",
}
HARMLESS |= {
    "CheckNumerics",
    "CheckNumericsV2",
    "CudnnRNN",
    "CudnnRNNV2",
    "CudnnRNNV3",
}  # Keras' own RNNs drop out before cuDNN
HARMLESS |= {"Assert", "PrintV2", "Placeholder", "TensorListFromTensor", "EmptyTensorList", "TensorListReserve"}
generators: WeakKeyDictionary[Block, list[Any]] = WeakKeyDictionary()  # that a block's code refers to


def records(inputs: list[Any], training: bool) -> bool:
    """Whether gradients may be asked for: by a tape now, or of the graph of a training function later."""
    import tensorflow as tf

    recording = importlib.import_module("tensorflow.python.eager.record").could_possibly_record()
    return bool(recording or (training and not tf.executing_eagerly()))


def checkpoint(block: Block, pure: Any, arguments: Arguments, trainable: list[bool]) -> Ran:
    import tensorflow as tf

    record = importlib.import_module("tensorflow.python.eager.record")
    inputs, masks, values = arguments
    refuse_composites(inputs)
    places = [place for place, mask in enumerate(masks) if mask is not None]
    given = [tf.convert_to_tensor(tensor) for tensor in (*inputs, *(masks[place] for place in places), *values)]
    refuse_forward_mode(block.name, given)
    cut = len(inputs), len(inputs) + len(places)
    differentiable = [True] * cut[0] + [False] * len(places) + trainable
    eager = tf.executing_eagerly()
    wanted = [
        place
        for place, tensor in enumerate(given)
        if differentiable[place]
        and (tensor.dtype.is_floating or tensor.dtype.is_complex)
        and (not eager or record.should_record_backprop([tensor]))
    ]

    def run(tensors: Sequence[Any]) -> Ran:
        inner: list[Any] = [None] * cut[0]
        for place, mask in zip(places, tensors[cut[0] : cut[1]], strict=True):
            inner[place] = mask
        ran: Ran = pure(list(tensors[: cut[0]]), inner, list(tensors[cut[1] :]))
        return ran

    refuse_side_effects_of_eager_code(block, run, given)
    kept: list[Ran] = []

    # Inside, the inputs are other tensors than outside: so it is seen what the block is given, and what it takes from there itself.
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def recomputed(*tensors: Any) -> Any:
        with record.stop_recording():
            here = not_before(tensors[: cut[0]], tensors[cut[1] :])
            here = [*map(tf.identity, tensors[: cut[0]]), *tensors[cut[0] : cut[1]], *here]
        before = None if eager else operation_count()
        with record.stop_recording(), nothing_drawn(block), nothing_taken(block):
            ran = run(here)
        if before is not None:
            graph = tf.compat.v1.get_default_graph()
            refuse_side_effects(block, graph, before)
            refuse_from_outside(block.name, graph, before, here)
        kept.append(ran)

        def gradient(*upstream: Any, variables: Sequence[Any] = ()) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                again = after(upstream, tensors)
                tape.watch([again[place] for place in wanted])
                tape.watch(list(variables))
                second = run(again)
                results = results_of(second)
            pairs = [
                (result, grad)
                for result, grad in zip(results, upstream, strict=True)
                if grad is not None and (result.dtype.is_floating or result.dtype.is_complex)
            ]
            sources = [*(again[place] for place in wanted), *variables]
            found = tape.gradient([r for r, _ in pairs], sources, output_gradients=[g for _, g in pairs])
            gradients: list[Any] = [None] * len(tensors)
            for place, grad in zip(wanted, found, strict=False):
                weight = (
                    place >= cut[1]
                )  # a table that is looked up has sparse gradients, and optimizers tell them apart
                gradients[place] = grad if grad is None or weight else tf.convert_to_tensor(grad)
            gradients[: cut[0]] = last(gradients[: cut[0]], [*gradients[cut[1] :], *found[len(wanted) :]])
            if not variables:
                return gradients
            return gradients, found[len(wanted) :]

        return results_of(ran), gradient

    results = recomputed(*given)
    first = kept.pop()
    outputs, losses = results[: len(first.outputs)], results[len(first.outputs) :]
    owners = [owner for owner, _ in first.losses]
    return Ran(
        list(outputs), first.masks, first.updates, list(zip(owners, losses, strict=True)), first.left, first.passed
    )


def results_of(ran: Ran) -> list[Any]:
    """What gradients flow back through; new statistics, seeds and masks have none."""
    import tensorflow as tf

    refuse_composites(ran.outputs)
    return [tf.convert_to_tensor(result) for result in (*ran.outputs, *(loss for _, loss in ran.losses))]


def refuse_composites(tensors: Iterable[Any]) -> None:
    import tensorflow as tf

    strange = {type(tensor).__name__ for tensor in tensors if isinstance(tensor, tf.SparseTensor | tf.RaggedTensor)}
    if strange:
        raise InputError(
            f"A block takes or gives a {strange.pop()}; only dense tensors can be recomputed.", "Move its edges."
        )


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


def operation_count() -> int:
    import tensorflow as tf

    return len(tf.compat.v1.get_default_graph().get_operations())


def layers_in(block: Block) -> list[Any]:
    return [inner for layer in block.layers for inner in layer._flatten_layers()]


@contextmanager
def nothing_drawn(block: Block) -> Iterator[None]:
    """Refuse a block whose code draws random numbers by NumPy or Python: a second run draws others, in a graph too, where it is another trace."""
    if block not in generators:
        generators[block] = generators_of(layers_in(block))
    before = states_of(generators[block])
    yield
    if states_of(generators[block]) != before:
        raise InputError(
            f"The block {block.name!r} cannot be recomputed: its code draws random numbers by NumPy or Python, and would draw others in a second run.",
            "Draw them by keras.random with a SeedGenerator, or leave that layer out.",
        )


def nothing_taken(block: Block) -> AbstractContextManager[None]:
    """Op by op, layers with code that is not Keras' own are listened to."""
    import tensorflow as tf

    if not tf.executing_eagerly() or not any(has_own_code(layer) for layer in layers_in(block)):
        return nullcontext()
    return nothing_from_outside(block.name)


def refuse_side_effects_of_eager_code(block: Block, run: Any, given: Sequence[Any]) -> None:
    """The first eager run of a block with layers that are not Keras' own is looked at as a graph beforehand."""
    import tensorflow as tf

    if block.checked or not tf.executing_eagerly():
        return
    block.checked = True
    if not any(has_own_code(layer) for layer in layers_in(block)):
        return

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def look(tensors: list[Any]) -> Any:
        return results_of(run(tensors))

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in given]
    refuse_side_effects(block, look.get_concrete_function(specs).graph, 0)


def refuse_side_effects(block: Block, graph: Any, start: int) -> None:
    """TensorFlow's own random numbers and assignments happen again, and differently, in a second run: no such block."""
    kinds = set()
    for operation in graph.get_operations()[start:]:
        kinds |= stateful_kinds(graph, operation.node_def, set())
    if kinds:
        raise InputError(
            f"The block {block.name!r} cannot be recomputed: it runs {', '.join(sorted(kinds))}, which a second run would repeat "
            "with another result.",
            "Draw random numbers by keras.random with a SeedGenerator, keep state in keras.Variable, or leave that layer out.",
        )


def stateful_kinds(graph: Any, node: Any, seen: set[str]) -> set[str]:
    registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
    kind = node.op
    names = [value.func.name for value in node.attr.values() if value.WhichOneof("value") == "func"]
    if kind in CALLS:
        kinds: set[str] = set()
        for name in set(names) - seen:
            seen.add(name)
            function = graph._get_function(name)
            if function is not None:
                for inner in function.cached_definition.node_def:
                    kinds |= stateful_kinds(graph, inner, seen)
        return kinds
    definition = registry.get(kind)
    return {kind} if definition is not None and definition.is_stateful and kind not in HARMLESS else set()
