"""Rematerialisation: blocks of a live Keras model that keep their inputs only and are computed again in the backward pass.

What is learned stays the same: a second run draws the same dropout masks, batch-normalisation statistics move once, and gradients
are the plain model's up to the order of floating-point additions. Works for Sequential, Functional (nested too) and subclassed
models on TensorFlow (graph, eager, XLA) and JAX (XLA for CPUs may undo it there; for GPUs it does not). Python code in a layer's `call` runs twice; Keras state in it does not change twice.
Private names used, tested with Keras 3.15.1: `Layer._flatten_layers`, `Layer.quantization_mode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from legroom.changes.remat_block import make_global_seeds
from legroom.changes.remat_hooks import hook_graph, hook_layer, hooked
from legroom.changes.remat_inside import inside_of
from legroom.changes.remat_units import (
    Unit,
    flops_of,
    functional_of,
    inner_bytes,
    inputs_of,
    needs,
    nodes_of,
    sample_bytes,
    saved_outputs,
    units_of,
)
from legroom.errors import InputError
from legroom.records.plan import Effect

STRINGS = ("TextVectorization", "StringLookup", "IntegerLookup", "Hashing", "HashedCrossing")
OVERWRITING = ("SpectralNormalization",)
FOREIGN = ("TFSMLayer", "TorchModuleWrapper")


@dataclass(frozen=True)
class Segment:
    """The smallest thing that can be recomputed; sizes are bytes per sample, 0 where only data would tell.

    `crossing_bytes` is all that lies between the segments before it and this one: what a block that starts here keeps; the batch
    itself is not counted. `shared_bytes` is the part of it that the segment before keeps anyway if it is plain, `needed_bytes` the part
    that this segment's own gradient needs.
    `model` is the nested model that it is part of ("" at the top): a block stays in one, or takes whole ones. One of a subclassed model is `alone`: a block of its own.
    """

    name: str
    layers: tuple[str, ...]
    model: str
    input_bytes: int
    output_bytes: int
    saved_bytes: int
    inner_bytes: int
    crossing_bytes: int
    shared_bytes: int
    needed_bytes: int
    flops: int
    refused: str = ""
    alone: bool = False

    def kept_bytes(self, batch: int) -> int:
        """What plain training keeps for it: outputs that some gradient reads (`saved_bytes`), and what is inside."""
        return batch * (self.saved_bytes + self.inner_bytes)

    def boundary_bytes(self, batch: int) -> int:
        return batch * self.crossing_bytes


def segments_of(model: Any) -> tuple[Segment, ...]:
    """The finest blocks that a model can be cut into, in the order in which they run."""
    units = buildable_units(model)
    reasons = dict(refusals(units))
    leaves = [leaf for unit in units for leaf in unit.leaves()]
    functional = functional_of(model)
    batch = {id(tensor) for tensor in functional.inputs} if functional is not None else set()
    pairs = zip([None, *leaves], leaves, strict=False)
    return tuple(segment_of(leaf, before, batch, reasons.get(leaf.name, "")) for before, leaf in pairs)


def segment_of(unit: Unit, before: Unit | None, batch: set[int], refused: str) -> Segment:
    above = unit.name.rpartition("/")[0]
    if unit.node is None:
        found = inside_of(unit.operation)
        return Segment(
            name=unit.name,
            layers=(unit.operation.name,),
            model=above,
            input_bytes=found.input_bytes,
            output_bytes=found.output_bytes,
            saved_bytes=found.output_bytes,
            inner_bytes=inner_bytes(unit),
            crossing_bytes=found.input_bytes,
            shared_bytes=found.input_bytes if before is not None else 0,
            needed_bytes=found.input_bytes if before is not None else 0,
            flops=found.flops,
            refused=refused,
            alone=True,
        )
    kept = [tensor for tensor in crossing(unit) if id(tensor) not in batch]
    needed = {id(tensor) for tensor in unit.node.input_tensors} if needs(unit.operation)[0] else set()
    anyway = (
        {id(tensor) for tensor in saved_outputs(before)} if before is not None and before.node is not None else set()
    )
    return Segment(
        name=unit.name,
        layers=(unit.operation.name,),
        model=above,
        input_bytes=sample_bytes(inputs_of([unit.node])),
        output_bytes=sample_bytes(unit.node.outputs),
        saved_bytes=sample_bytes(saved_outputs(unit)),
        inner_bytes=sum_inside(unit),
        crossing_bytes=sample_bytes(kept),
        shared_bytes=sample_bytes([tensor for tensor in kept if id(tensor) in anyway]),
        needed_bytes=sample_bytes([tensor for tensor in kept if id(tensor) in needed]),
        flops=sum(flops_of(leaf) for leaf in opened(unit)),
        refused=refused,
    )


def opened(unit: Unit) -> Iterator[Unit]:
    """The leaves of a unit, those of a nested model that cannot be opened (it is called twice) among them."""
    if functional_of(unit.operation) is None:
        yield unit
        return
    for inner in units_of(unit.operation):
        yield from opened(inner)


def sum_inside(unit: Unit) -> int:
    leaves = list(opened(unit))
    if leaves == [unit]:
        return inner_bytes(unit)
    return sum(inner_bytes(leaf) + (sample_bytes(saved_outputs(leaf)) if leaf.node else 0) for leaf in leaves)


def crossing(unit: Unit) -> list[Any]:
    """The tensors that exist before a node runs and are used by it or later."""
    nodes = nodes_of(unit.host)
    place = next(place for place, node in enumerate(nodes) if node is unit.node)
    made = [*unit.host.inputs, *(tensor for node in nodes[:place] for tensor in node.outputs)]
    used = {id(tensor) for node in nodes[place:] for tensor in node.input_tensors}
    return list({id(tensor): tensor for tensor in made if id(tensor) in used}.values())


def rematerialise(model: Any, blocks: Sequence[Sequence[str]]) -> Callable[[], None]:
    """Makes each block of consecutive segments (see `segments_of`) forget its insides; the answer undoes it, as often as called."""
    units = buildable_units(model)
    refuse_no_blocks(blocks)
    if any(hooked(instance) for instance in instances(model, units)):
        raise InputError(f"The model {model.name!r} is rematerialised already.", "Undo that first.")
    groups = [group_of(units, tuple(block), model.name) for block in blocks if block]
    refuse_twice(groups)
    reasons = dict(refusals(units))
    for group in groups:
        for leaf in (leaf for unit in group for leaf in unit.leaves()):
            if leaf.name in reasons:
                raise InputError(
                    f"{leaf.name!r} cannot be recomputed: {reasons[leaf.name]}.", "Leave it out of the blocks."
                )
    refuse_replicas(model)
    make_global_seeds()
    undos = hook_all(groups)
    forget_compiled(model)

    def undo() -> None:
        if undos:
            while undos:
                undos.pop()()
            forget_compiled(model)

    return undo


def hook_all(groups: Sequence[Sequence[Unit]]) -> list[Callable[[], None]]:
    undos: list[Callable[[], None]] = []
    graphs: dict[int, list[Sequence[Unit]]] = {}
    for group in groups:
        if group[0].node is None:
            undos += hook_layer(group[0])
        else:
            graphs.setdefault(id(group[0].host), []).append(group)
    for inside in graphs.values():
        undos += hook_graph(inside[0][0].host, inside)
    return undos


def instances(model: Any, units: Sequence[Unit]) -> Iterator[Any]:
    """Everything that a hook could sit on."""
    yield model
    for unit in units:
        yield from (part for part in (unit.host, unit.operation) if part is not None)
        yield from instances(unit.operation, unit.inside)


def forget_compiled(model: Any) -> None:
    """Compiled steps hold the old way through the model: Keras makes them again when they are missing."""
    for name in ("train_function", "test_function", "predict_function"):
        if getattr(model, name, None) is not None:
            setattr(model, name, None)


def effect(model: Any, blocks: Sequence[Sequence[str]]) -> Effect:
    """Recomputation is exact wherever it is not refused: masks, statistics and gradients are the plain model's."""
    units = buildable_units(model)
    refuse_no_blocks(blocks)
    for block in blocks:
        if block:
            group_of(units, tuple(block), model.name)
    return Effect()


def cannot(model: Any) -> tuple[str, ...]:
    """Why some layers are refused, one sentence each; all others can be recomputed."""
    return tuple(f"{name}: {reason}" for name, reason in refusals(buildable_units(model)))


def refusals(units: Sequence[Unit]) -> Iterator[tuple[str, str]]:
    for unit in units:
        for leaf in unit.leaves():
            reason = refusal(leaf)
            if reason:
                yield leaf.name, reason


def refusal(unit: Unit) -> str:
    inner = getattr(unit.operation, "_flatten_layers", lambda: [unit.operation])()
    kinds = {type(layer).__name__: layer for layer in inner}
    for name in (*STRINGS, *OVERWRITING, *FOREIGN):
        if name in kinds:
            why = {**dict.fromkeys(STRINGS, "looks up or hashes data, which has no gradient")}
            why |= dict.fromkeys(OVERWRITING, "overwrites a trained weight in its forward pass")
            return f"{name} {why.get(name, 'runs code that is not Keras’, whose state nobody can hold')}"
    if any(getattr(layer, "quantization_mode", None) is not None for layer in inner):
        return "it is quantised"
    tensors = [] if unit.node is None else [*unit.node.input_tensors, *unit.node.outputs]
    fed = {id(tensor) for tensor in unit.host.inputs} if unit.node is not None else set()
    # Keras marks products with a Python number as sparse, so only what is fed can be believed; the rest is seen when it runs.
    if any(tensor.sparse or getattr(tensor, "ragged", False) for tensor in tensors if id(tensor) in fed):
        return "it takes sparse or ragged tensors"
    if any(tensor.dtype == "string" for tensor in tensors):
        return "it takes or gives strings"
    if not getattr(unit.operation, "built", True):
        return "it is not built"
    return ""


def buildable_units(model: Any) -> tuple[Unit, ...]:
    import keras

    if not isinstance(model, keras.Model):
        raise InputError(f"Only a keras.Model can be rematerialised. Received: {type(model).__name__}.")
    if keras.backend.backend() not in ("tensorflow", "jax"):
        raise InputError(f"Rematerialisation needs TensorFlow or JAX. Received: Keras on {keras.backend.backend()}.")
    if not model.built:
        raise InputError(
            f"The model {model.name!r} is not built, so its parts are not known.", "Call it once on a batch."
        )
    return units_of(model)


def refuse_no_blocks(blocks: Any) -> None:
    each = blocks if isinstance(blocks, list | tuple) else [None]
    if not all(isinstance(block, list | tuple) and all(isinstance(name, str) for name in block) for block in each):
        raise InputError(
            f"Blocks are lists of the names of segments. Received: {blocks!r}.",
            'For example [["dense", "relu"], ["dense_1"]] (see segments_of).',
        )


def refuse_replicas(model: Any) -> None:
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is not None and strategy.num_replicas_in_sync > 1:
        raise InputError(f"The model {model.name!r} trains on several replicas; rematerialisation is for one device.")


def group_of(units: Sequence[Unit], block: tuple[str, ...], model: str) -> tuple[Unit, ...]:
    """The units, all of one graph, whose leaves are exactly the block's names."""
    leaves = [leaf.name for unit in units for leaf in unit.leaves()]
    unknown = [name for name in block if name not in leaves]
    if unknown:
        known = ", ".join(leaves[:8]) + (", …" if len(leaves) > 8 else "")
        raise InputError(
            f"{model!r} has no segment {', '.join(map(repr, unknown))}.", f"It has {known} (see segments_of)."
        )
    start = leaves.index(block[0])
    if tuple(leaves[start : start + len(block)]) != block:
        raise InputError(
            f"The block {', '.join(block)} is not a run of consecutive segments.",
            f"From {block[0]!r} on they are {', '.join(leaves[start : start + len(block)])}.",
        )
    group = covering(units, set(block))
    if group is None:
        raise InputError(
            f"The block {', '.join(block)} cuts through a nested model.", "Take the whole of it, or stay inside."
        )
    if group[0].node is None and len(group) > 1:
        raise InputError(
            f"{', '.join(block)}: the sub-layers of a subclassed model are recomputed one by one.",
            "Make each its own block.",
        )
    return group


def covering(units: Sequence[Unit], names: set[str]) -> tuple[Unit, ...] | None:
    """The run of units of one level with these leaves; as far inside as it goes, so that a nested model's graph has the block."""
    inside = {unit: {leaf.name for leaf in unit.leaves()} for unit in units}
    for unit in units:
        if unit.inside and names <= inside[unit]:
            return covering(unit.inside, names)
    touched = tuple(unit for unit in units if inside[unit] & names)
    return touched if set().union(*(inside[unit] for unit in touched)) == names else None


def refuse_twice(groups: Sequence[Sequence[Unit]]) -> None:
    seen: set[str] = set()
    for group in groups:
        for leaf in (leaf for unit in group for leaf in unit.leaves()):
            if leaf.name in seen:
                raise InputError(f"{leaf.name!r} is in two blocks.", "Put it into one.")
            seen.add(leaf.name)
