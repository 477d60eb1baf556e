"""What the simulation does not know of a step: ops without a rule, sizes that only running would tell."""

from collections.abc import Iterator

from legroom.engines.op.graph import COMPILED_CALL, LOOP_END, LOOP_GATE, Graph
from legroom.engines.op.kernels_gpu_geometry import arrays
from legroom.engines.op.lists import LIST_KINDS
from legroom.engines.op.op_counts import moved_bytes
from legroom.engines.op.ops import Op
from legroom.engines.op.sharing import KNOWN
from legroom.engines.op.signature import UP_TO_INPUT
from legroom.engines.op.trace import EagerTrace, Ran

SHOWN = 6
OWN = frozenset((LOOP_GATE, LOOP_END, "VarHandleOp", "Const", "NoOp", "_Arg", "_Retval", "Placeholder")) | LIST_KINDS


def ops_of(work: Graph | EagerTrace) -> Iterator[Op]:
    if isinstance(work, Graph):
        yield from (node.op for node in work.nodes)
    else:
        yield from (event.op for event in work.events if isinstance(event, Ran))


def unknown_kinds(work: Graph | EagerTrace) -> dict[str, int]:
    """Kind → the bytes of what such ops make."""
    found: dict[str, int] = {}
    for op in ops_of(work):
        if op.kind not in KNOWN and op.kind not in OWN:
            found[op.kind] = found.get(op.kind, 0) + sum(array.size_bytes for array in op.outputs)
    return found


def unknown_bytes(work: Graph | EagerTrace) -> int:
    """What ops make that have no rule, and ops whose size is not known."""
    unsized = 0
    if isinstance(work, Graph) and work.unsized:
        names = set(work.unsized)
        ops = (op for op in ops_of(work) if f"{op.kind} ({op.name})" in names)
        unsized = sum(array.size_bytes for op in ops for array in op.outputs)
    if isinstance(work, EagerTrace):
        unsized = open_bytes(work)
    return sum(unknown_kinds(work).values()) + unsized


def open_bytes(trace: EagerTrace) -> int:
    """What an eager step makes from tensors whose size depends on data."""
    open_tensors: set[int] = set()
    found = 0
    for event in trace.events:
        if isinstance(event, Ran) and (event.op.kind in UP_TO_INPUT or not open_tensors.isdisjoint(event.inputs)):
            open_tensors.update(event.outputs)
            found += sum(array.size_bytes for array in event.op.outputs)
    return found


def compiled_bytes(work: Graph | EagerTrace) -> int:
    """The most that goes into and comes out of one function that XLA compiles inside the step."""
    calls = (op for op in ops_of(work) if op.kind == COMPILED_CALL)
    return max((moved_bytes(op) for op in calls), default=0)


def convolved_bytes(work: Graph | EagerTrace) -> int:
    """Image and result of the largest convolution."""
    convolutions = (arrays(op) for op in ops_of(work) if "Conv" in op.kind and op.kind in KNOWN)
    return max((image.size_bytes + result.size_bytes for image, _, result in convolutions), default=0)


def has_recurrent_kernels(work: Graph | EagerTrace) -> bool:
    return any(op.kind.startswith("CudnnRNN") for op in ops_of(work))


def notes_of(work: Graph | EagerTrace) -> tuple[str, ...]:
    notes = list(work.notes)
    kinds = sorted(unknown_kinds(work))
    if kinds:
        more = f" and {len(kinds) - SHOWN} more" if len(kinds) > SHOWN else ""
        notes.append(f"unknown ops, counted by their outputs: {', '.join(kinds[:SHOWN])}{more}")
    if COMPILED_CALL in kinds:
        notes.append("a function inside the step is compiled by XLA: what it holds while it runs is not known")
    if isinstance(work, Graph) and work.unsized:
        more = f" and {len(work.unsized) - SHOWN} more" if len(work.unsized) > SHOWN else ""
        notes.append(f"sizes that only running would tell: {', '.join(work.unsized[:SHOWN])}{more}")
    return tuple(notes)
