"""Recomputation on JAX: `jax.checkpoint` around the block; the block is traced once, so both runs are the same program."""

from __future__ import annotations

from typing import Any

from legroom.changes.remat_block import Block, Ran

Arguments = tuple[list[Any], list[Any], list[Any]]


def records(inputs: list[Any], training: bool) -> bool:
    """Outside of any trace nothing can be differentiated, and nothing would be kept."""
    import jax

    return training or any(isinstance(tensor, jax.core.Tracer) for tensor in inputs)


def checkpoint(block: Block, pure: Any, arguments: Arguments, trainable: list[bool]) -> Ran:
    import jax

    named: list[Ran] = []

    def function(inputs: list[Any], masks: list[Any], values: list[Any]) -> Any:
        ran = pure(inputs, masks, values)
        named.append(ran)
        return ran.outputs, ran.masks, [value for _, value in ran.updates], [loss for _, loss in ran.losses], ran.left

    outputs, masks, updates, losses, left = jax.checkpoint(function)(*arguments)
    variables = [variable for variable, _ in named[-1].updates]
    owners = [owner for owner, _ in named[-1].losses]
    pairs = list(zip(variables, updates, strict=True)), list(zip(owners, losses, strict=True))
    return Ran(outputs, masks, *pairs, left, named[-1].passed)
