"""A graph with what running it does on a device's kernels, worked out once for any number of runs."""

from dataclasses import dataclass
from typing import Protocol

from legroom.engines.op.awaited import sums
from legroom.engines.op.clock import Clock
from legroom.engines.op.graph import Graph, Node
from legroom.engines.op.ops import Op
from legroom.engines.op.sharing import COPY_ON_READ, updates

ASSIGNS = frozenset(("AssignVariableOp",))


class Kernels(Protocol):
    """What the device's kernels do to memory beside making outputs."""

    def shares(self, op: Op, output: int) -> int | None: ...

    def may_reuse(self, op: Op, output: int) -> tuple[int, ...]: ...

    def lends(self, op: Op) -> tuple[int, ...]: ...

    def output_bytes(self, op: Op, output: int) -> int: ...

    def temporaries(self, op: Op) -> tuple[int, ...]: ...

    def outputs_last(self, op: Op) -> bool: ...

    def seconds(self, op: Op) -> float: ...

    def is_cheap(self, op: Op) -> bool: ...

    def clock(self) -> Clock: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What running a node does, worked out once."""

    shares: tuple[int | None, ...]
    reuses: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    temporaries: tuple[int, ...]
    outputs_last: bool  # the temporaries are taken before them
    lends: tuple[int, ...]
    seconds: float
    cheap: bool
    variable: str | None


class Planned:
    """A graph with what running it does on a device's kernels, worked out once for any number of runs."""

    def __init__(self, graph: Graph, kernels: Kernels) -> None:
        self.graph = graph
        self.kernels = kernels
        self.consumers, self.waits, self.reads = wire(graph)
        self.sums = sums(graph)
        self.plans = [plan(node, kernels) for node in graph.nodes]
        self.copied_on_read = {v for node in graph.nodes if node.op.kind in COPY_ON_READ for v in node.variables[:1]}


def plan(node: Node, kernels: Kernels) -> Plan:
    op = node.op
    outputs = range(len(op.outputs))
    how = "assign" if op.kind in ASSIGNS else "update" if node.variables and updates(op) else None
    return Plan(
        shares=tuple(within(kernels.shares(op, k), node) for k in outputs),
        reuses=tuple(tuple(i for i in kernels.may_reuse(op, k) if i < len(node.inputs)) for k in outputs),
        sizes=tuple(kernels.output_bytes(op, k) for k in outputs),
        temporaries=kernels.temporaries(op),
        outputs_last=kernels.outputs_last(op),
        lends=kernels.lends(op),
        seconds=kernels.seconds(op),
        cheap=kernels.is_cheap(op),
        variable=how,
    )


def within(share: int | None, node: Node) -> int | None:
    """An element of a list that was never set has nothing to share: it is made of zeros."""
    return share if share is not None and share < len(node.inputs) else None


def wire(graph: Graph) -> tuple[list[list[int]], list[int], list[int]]:
    """For each node who waits for it (once: who takes its results before who takes none, in the graph's order), how many it
    waits for; for each tensor how often it is read."""
    maker: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        for tensor in node.outputs:
            maker[tensor] = number
    consumers: list[list[int]] = [[] for _ in graph.nodes]
    followers: list[list[int]] = [[] for _ in graph.nodes]  # by control edges alone
    waits = [0] * len(graph.nodes)
    reads = [0] * len(graph.tensors)
    for number, node in enumerate(graph.nodes):
        for tensor in node.inputs:
            reads[tensor] += 1
        data = {maker[tensor] for tensor in node.inputs if tensor in maker}
        controls = set(node.after) - data
        waits[number] = len(data) + len(controls)
        for earlier in data:
            consumers[earlier].append(number)
        for earlier in controls:
            followers[earlier].append(number)
    for tensor in graph.returned:
        reads[tensor] += 1
    return [first + then for first, then in zip(consumers, followers, strict=True)], waits, reads
