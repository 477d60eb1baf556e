"""Recomputation on TensorFlow: a custom gradient that keeps a block's inputs and runs the block again under a tape of its own.

The second run waits for the incoming gradient (a control dependency; under XLA an optimisation barrier), or Grappler's and XLA's
common-subexpression elimination would merge it with the first. `tf.recompute_grad` does the same for functions without state.

Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.eager.record` (`stop_recording`, `could_possibly_record`,
`should_record_backprop`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from legroom.changes.remat_block import Block, Ran
from legroom.changes.remat_order import after, last, not_before
from legroom.changes.remat_outer import refuse_from_outside
from legroom.changes.remat_side_effects import (
    nothing_drawn,
    nothing_taken,
    operation_count,
    refuse_side_effects,
    refuse_side_effects_of_eager_code,
)
from legroom.changes.remat_tapes import refuse_forward_mode
from legroom.errors import InputError

Arguments = tuple[list[Any], list[Any], list[Any]]


def records(inputs: list[Any], training: bool) -> bool:
    """Whether gradients may be asked for: by a tape now, or of the graph of a training function later."""
    import tensorflow as tf

    return bool(recording().could_possibly_record() or (training and not tf.executing_eagerly()))


@dataclass(frozen=True)
class Given:
    """What a block is run on, in one row: its inputs, the masks of those that have one, and its state."""

    tensors: list[Any]
    places: list[int]  # the inputs that have a mask
    masks: int  # where the masks begin
    state: int  # where the state begins
    wanted: list[int]  # what has a gradient

    @classmethod
    def of(cls, arguments: Arguments, trainable: list[bool]) -> Given:
        import tensorflow as tf

        inputs, masks, values = arguments
        places = [place for place, mask in enumerate(masks) if mask is not None]
        tensors = [tf.convert_to_tensor(tensor) for tensor in (*inputs, *(masks[place] for place in places), *values)]
        differentiable = [True] * len(inputs) + [False] * len(places) + trainable
        eager, record = tf.executing_eagerly(), recording()
        wanted = [
            place
            for place, tensor in enumerate(tensors)
            if differentiable[place] and has_gradient(tensor) and (not eager or record.should_record_backprop([tensor]))
        ]
        return cls(tensors, places, len(inputs), len(inputs) + len(places), wanted)

    def run(self, pure: Any, tensors: Sequence[Any]) -> Ran:
        masks: list[Any] = [None] * self.masks
        for place, mask in zip(self.places, tensors[self.masks : self.state], strict=True):
            masks[place] = mask
        ran: Ran = pure(list(tensors[: self.masks]), masks, list(tensors[self.state :]))
        return ran


def checkpoint(block: Block, pure: Any, arguments: Arguments, trainable: list[bool]) -> Ran:
    """What the block gives; its gradients run it again."""
    import tensorflow as tf

    refuse_composites(arguments[0])
    given = Given.of(arguments, trainable)
    refuse_forward_mode(block.name, given.tensors)
    refuse_side_effects_of_eager_code(block, lambda tensors: results_of(given.run(pure, tensors)), given.tensors)
    kept: list[Ran] = []

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def recomputed(*tensors: Any) -> Any:
        ran = first_run(block, pure, given, tensors)
        kept.append(ran)
        return results_of(ran), gradient_of(pure, given, tensors)

    results = recomputed(*given.tensors)
    first = kept.pop()
    outputs, losses = results[: len(first.outputs)], results[len(first.outputs) :]
    owners = [owner for owner, _ in first.losses]
    return Ran(
        list(outputs), first.masks, first.updates, list(zip(owners, losses, strict=True)), first.left, first.passed
    )


def first_run(block: Block, pure: Any, given: Given, tensors: Sequence[Any]) -> Ran:
    """No tape sees it, and inside, the inputs are other tensors than outside: so it is seen what the block is given, and what it takes from
    there itself."""
    import tensorflow as tf

    record = recording()
    with record.stop_recording():
        state = not_before(tensors[: given.masks], tensors[given.state :])
        here = [*map(tf.identity, tensors[: given.masks]), *tensors[given.masks : given.state], *state]
    before = None if tf.executing_eagerly() else operation_count()
    with record.stop_recording(), nothing_drawn(block), nothing_taken(block):
        ran = given.run(pure, here)
    if before is not None:
        graph = tf.compat.v1.get_default_graph()
        refuse_side_effects(block, graph, before)
        refuse_from_outside(block.name, graph, before, here)
    return ran


def gradient_of(pure: Any, given: Given, tensors: Sequence[Any]) -> Callable[..., Any]:
    """The gradients of a block's inputs and weights, from a second run."""
    import tensorflow as tf

    def gradient(*upstream: Any, variables: Sequence[Any] = ()) -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            again = after(upstream, tensors)
            tape.watch([again[place] for place in given.wanted])
            tape.watch(list(variables))
            results = results_of(given.run(pure, again))
        pairs = [
            (result, grad)
            for result, grad in zip(results, upstream, strict=True)
            if grad is not None and has_gradient(result)
        ]
        sources = [*(again[place] for place in given.wanted), *variables]
        found = tape.gradient([r for r, _ in pairs], sources, output_gradients=[g for _, g in pairs])
        gradients: list[Any] = [None] * len(tensors)
        for place, grad in zip(given.wanted, found, strict=False):
            # a table that is looked up has sparse gradients, and optimizers tell them apart
            weight = place >= given.state
            gradients[place] = grad if grad is None or weight else tf.convert_to_tensor(grad)
        of_variables = found[len(given.wanted) :]
        gradients[: given.masks] = last(gradients[: given.masks], [*gradients[given.state :], *of_variables])
        return (gradients, of_variables) if variables else gradients

    return gradient


def recording() -> Any:
    return importlib.import_module("tensorflow.python.eager.record")


def has_gradient(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


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
