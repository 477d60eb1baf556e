"""The tensors between a model's segments: who makes each, who reads it, and whose gradient needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legroom.changes.remat_units import Unit, functional_of, needs, sample_bytes, saved_outputs


def outputs_of_leaves(units: Sequence[Unit]) -> list[list[tuple[int, list[int], list[int]]]]:
    """For each leaf what it makes: bytes a sample, the leaves whose gradients need it, the leaves that read it.

    Nothing is known of what runs code of its own: then all lists are empty, and the leaves count as a chain.
    """
    leaves = [leaf for unit in units for leaf in unit.leaves()]
    if any(leaf.node is None for leaf in leaves):
        return [[] for _ in leaves]
    same: dict[int, Any] = {}
    pair_nested(units, same)
    read: dict[int, list[int]] = {}
    held: dict[int, list[int]] = {}
    for place, leaf in enumerate(leaves):
        for tensor in {id(one): one for one in map(same_as(same), leaf.node.input_tensors)}:
            read.setdefault(tensor, []).append(place)
            if needs(leaf.operation)[0]:
                held.setdefault(tensor, []).append(place)
    found = []
    for place, leaf in enumerate(leaves):
        saved = {id(tensor) for tensor in saved_outputs(leaf)}
        made = {id(tensor): tensor for tensor in leaf.node.outputs}
        rows = []
        for key, tensor in made.items():
            holders = set(held.get(key, ()))
            if needs(leaf.operation)[1] or (key in saved and not holders):
                holders.add(place)  # for itself, for the loss, or for the caller of a nested model
            rows.append((sample_bytes([tensor]), sorted(holders), read.get(key, [])))
        found.append(rows)
    return found


def pair_nested(units: Sequence[Unit], same: dict[int, Any]) -> None:
    """Inside a nested model its inputs are the caller's tensors, and outside it its outputs are those made inside."""
    resolve = same_as(same)
    for unit in units:
        if not unit.inside:
            continue
        inner = functional_of(unit.operation)
        assert inner is not None
        for inside, outside in zip(inner.inputs, unit.node.input_tensors, strict=False):
            same[id(inside)] = resolve(outside)
        pair_nested(unit.inside, same)
        for outside, inside in zip(unit.node.outputs, inner.outputs, strict=False):
            same[id(outside)] = resolve(inside)


def same_as(same: dict[int, Any]) -> Any:
    def resolve(tensor: Any) -> Any:
        while id(tensor) in same:
            tensor = same[id(tensor)]
        return tensor

    return resolve
