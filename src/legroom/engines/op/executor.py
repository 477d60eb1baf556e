"""TensorFlow's executor, simulated: which node runs when, and when each buffer is taken and let go.

After `executor.cc` and Eigen's thread pool: a thread runs a node and then, first in first out, the cheap nodes that it made
ready; of the expensive ones it keeps the first if it has nothing else to do, and hands the others to the pool, where a thread takes
its own newest task first and steals the oldest of others. Every kernel counts as expensive on a CPU, none on a GPU. A buffer is
freed when its last reader has run; a kernel may take over an input's buffer that nobody else will read.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Literal, Protocol

from legroom.engines.op.bfc import OutOfMemory
from legroom.engines.op.graph import Graph, Node
from legroom.engines.op.ops import Op
from legroom.engines.op.sharing import COPY_ON_READ, updates

ASSIGNS = frozenset(("AssignVariableOp",))


class Allocator(Protocol):
    """What the executor takes buffers from: `legroom.engines.op.bfc.Bfc`."""

    def allocate(self, size_bytes: int) -> int: ...

    def free(self, address: int) -> None: ...


class Kernels(Protocol):
    """What the device's kernels do to memory beside making outputs."""

    def shares(self, op: Op, output: int) -> int | None: ...

    def may_reuse(self, op: Op, output: int) -> tuple[int, ...]: ...

    def lends(self, op: Op) -> tuple[int, ...]: ...

    def output_bytes(self, op: Op, output: int) -> int: ...

    def temporaries(self, op: Op) -> tuple[int, ...]: ...

    def seconds(self, op: Op) -> float: ...

    def is_cheap(self, op: Op) -> bool: ...


Owner = Literal["variable", "argument", "constant", "output", "temporary"]


@dataclass(slots=True)
class Buffer:
    """A piece of memory that is held: by whom (a node, a variable, an argument, by number), and from which moment to which."""

    owner: Owner
    number: int
    size_bytes: int
    address: int
    birth: int
    death: int | None = None
    readers: int = 0
    kept: bool = False


@dataclass(slots=True)
class _Thread:
    inline: deque[int] = field(default_factory=deque)
    tasks: deque[int] = field(default_factory=deque)
    running: int | None = None
    waiting: tuple[int, OutOfMemory] | None = (
        None  # a node for which there was no room, as long as others may make some
    )


class Executor:
    """Runs a graph's steps one after the other on one allocator; variables, constants and arguments live through all of them."""

    def __init__(self, planned: "Planned", allocator: Allocator, threads: int, seed: int = 0) -> None:
        """`seed`: another one makes kernels take other times, and so lets them run in another order that might happen as well."""
        graph = self.graph = planned.graph
        self.random = Random(seed) if seed else None
        self.kernels = planned.kernels
        self.allocator = allocator
        self.threads = threads
        self.buffers: list[Buffer] = []
        self.moment = 0
        self.recorded_from = 0
        self.asking: tuple[Owner, int] = "variable", 0
        self.schedule: list[int] = []
        self.variables: list[Buffer | None] = []
        self.fixed: dict[int, Buffer | None] = {}
        self.consumers, self.waits, self.reads = planned.consumers, planned.waits, planned.reads
        self.plans = planned.plans
        self.copied_on_read = {v for node in graph.nodes if node.op.kind in COPY_ON_READ for v in node.variables[:1]}
        self.bound: dict[int, Buffer | None] = {}
        self.temporaries: dict[int, list[Buffer]] = {}

    def place(self, made: Sequence[tuple[int, int]] | None = None) -> None:
        """Takes memory for what exists before the first step: variables in the order in which they were made (a variable and
        how many drafts of it were held meanwhile), then the step's arguments and constants."""
        self.variables = [None] * len(self.graph.variables)
        for variable, drafts in made if made is not None else [(i, 0) for i in range(len(self.variables))]:
            size = self.graph.variables[variable].size_bytes
            held = [self.take("variable", variable, size) for _ in range(drafts)]
            self.variables[variable] = self.take("variable", variable, size, kept=True)
            for draft in held:
                self.drop(draft)
        groups: tuple[tuple[Owner, tuple[int, ...]], ...]
        groups = (("argument", self.graph.arguments), ("constant", self.graph.constants))
        for owner, tensors in groups:
            for number, tensor in enumerate(tensors):
                size = self.kernels.output_bytes(Op("", "_Arg", (), (self.graph.tensors[tensor],)), 0)
                self.fixed[tensor] = self.take(owner, number, size, kept=True)

    def take(self, owner: Owner, number: int, size_bytes: int, *, kept: bool = False) -> Buffer | None:
        if size_bytes <= 0:
            return None
        self.asking = owner, number
        buffer = Buffer(owner, number, size_bytes, self.allocator.allocate(size_bytes), self.moment, kept=kept)
        buffer.readers = 1 if kept else 0
        self.buffers.append(buffer)
        return buffer

    def start_recording(self) -> None:
        """What is held from now on, and what runs, is what will be told."""
        self.recorded_from = self.moment
        self.schedule = []
        self.buffers = [buffer for buffer in self.buffers if buffer.death is None]

    def drop(self, buffer: Buffer | None) -> None:
        """One reader less."""
        if buffer is None:
            return
        buffer.readers -= 1
        if buffer.readers <= 0 and buffer.death is None:
            buffer.death = self.moment
            self.allocator.free(buffer.address)

    def step(self) -> None:
        """Runs every node once."""
        self.bound = {}
        for tensor in (*self.graph.arguments, *self.graph.constants):
            buffer = self.fixed[tensor]
            if buffer is not None:
                buffer.readers += self.reads[tensor]
            self.bound[tensor] = buffer
        self.pending = list(self.waits)
        pool = [_Thread() for _ in range(self.threads)]
        roots = [n for n, waits in enumerate(self.pending) if waits == 0]
        for i, node in enumerate(roots):
            pool[i % self.threads].tasks.append(node)
        heap: list[tuple[float, int, int]] = []
        self.order = 0
        idle: list[int] = []
        for i in range(self.threads):
            self.begin_next(pool, i, 0.0, heap, idle)
        while heap:
            now, _, i = heappop(heap)
            thread = pool[i]
            assert thread.running is not None
            ready = self.end(thread.running)
            thread.running = None
            self.hand_out(thread, ready)
            for j, other in enumerate(pool):
                if other.waiting is not None:
                    self.start(pool, j, other.waiting[0], now, heap)
            self.begin_next(pool, i, now, heap, idle)
            while idle and any(thread.tasks for thread in pool):
                self.begin_next(pool, idle.pop(0), now, heap, idle)
            stuck = next((thread.waiting for thread in pool if thread.waiting is not None), None)
            if not heap and stuck is not None:  # nobody is left who could make room
                raise stuck[1]
        for tensor in self.graph.returned:
            self.drop(self.bound.get(tensor))

    def hand_out(self, thread: _Thread, ready: list[int]) -> None:
        """Cheap nodes stay with the thread; of expensive ones the first does, if nothing else is left to do."""
        expensive = []
        for node in ready:
            if self.plans[node].cheap:
                thread.inline.append(node)
            else:
                expensive.append(node)
        if expensive and not thread.inline:
            thread.inline.append(expensive.pop(0))
        for node in reversed(expensive):
            thread.tasks.appendleft(node)

    def begin_next(
        self, pool: list[_Thread], i: int, now: float, heap: list[tuple[float, int, int]], idle: list[int]
    ) -> None:
        thread = pool[i]
        if thread.inline:
            node = thread.inline.popleft()
        elif thread.tasks:
            node = thread.tasks.popleft()
        else:
            victim = next((other for other in pool if other.tasks), None)
            if victim is None:
                idle.append(i)
                return
            node = victim.tasks.pop()
        self.start(pool, i, node, now, heap)

    def start(self, pool: list[_Thread], i: int, node: int, now: float, heap: list[tuple[float, int, int]]) -> None:
        """Starts a node, or lets its thread wait for memory: TensorFlow tries again for ten seconds while others run."""
        thread = pool[i]
        try:
            self.begin(node)
        except OutOfMemory as error:
            thread.waiting = node, error
            if not heap:
                raise
            return
        thread.running, thread.waiting = node, None
        self.order += 1
        seconds = self.plans[node].seconds
        if self.random is not None:
            seconds *= 2 ** self.random.uniform(-1.5, 1.5)
        heappush(heap, (now + seconds, self.order, i))

    def begin(self, number: int) -> None:
        """The kernel starts: outputs and temporaries are taken."""
        node, plan = self.graph.nodes[number], self.plans[number]
        self.moment += 1
        self.schedule.append(number)
        before, bound = len(self.buffers), []
        try:
            if plan.variable is not None:
                self.change_variable(node, plan.variable)
            for k, tensor in enumerate(node.outputs):
                buffer = self.buffer_for(number, node, plan, k)
                if buffer is not None:
                    readers = self.reads[tensor] + 1  # and the running kernel itself, until it ends
                    buffer.readers += readers
                    bound.append((buffer, readers))
                self.bound[tensor] = buffer
            self.take_temporaries(number, node, plan)
        except OutOfMemory:
            self.take_back(before, bound)
            raise

    def take_back(self, before: int, bound: list[tuple[Buffer, int]]) -> None:
        """As if the kernel had not been started."""
        for buffer, readers in bound:
            buffer.readers -= readers
        for buffer in self.buffers[before:]:
            if buffer.owner in ("output", "temporary"):
                self.allocator.free(buffer.address)
        self.buffers[before:] = [buffer for buffer in self.buffers[before:] if buffer.owner == "variable"]
        self.schedule.pop()
        self.moment -= 1

    def take_temporaries(self, number: int, node: Node, plan: "_Plan") -> None:
        if plan.temporaries:
            sizes = list(plan.temporaries)
            for position in plan.lends:
                lent = self.bound.get(node.inputs[position])
                if lent is not None and lent.readers == 1 and not lent.kept and lent.size_bytes in sizes:
                    sizes.remove(lent.size_bytes)
            taken = [self.take("temporary", number, size) for size in sizes]
            self.temporaries[number] = [buffer for buffer in taken if buffer is not None]
            for buffer in self.temporaries[number]:
                buffer.readers = 1

    def buffer_for(self, number: int, node: Node, plan: "_Plan", k: int) -> Buffer | None:
        share = plan.shares[k]
        if share is not None:
            if node.op.kind == "ReadVariableOp" and node.variables:
                if node.variables[0] in self.copied_on_read:
                    return self.take("output", number, plan.sizes[k])
                return self.variables[node.variables[0]]
            return self.bound.get(node.inputs[share])
        size = plan.sizes[k]
        if size == 0:
            return None
        for position in plan.reuses[k]:
            candidate = self.bound.get(node.inputs[position])
            if candidate is not None and candidate.readers == 1 and not candidate.kept and candidate.size_bytes == size:
                return candidate
        return self.take("output", number, size)

    def change_variable(self, node: Node, how: str) -> None:
        """A variable that somebody still reads is not written to: it gets a new buffer. A value that nobody else reads becomes it."""
        for variable in node.variables:
            old = self.variables[variable]
            if how == "assign":
                value = self.bound.get(node.inputs[1]) if len(node.inputs) > 1 else None
                free = value is not None and value.readers == 1 and not value.kept
                if value is not None and free and old is not None and variable not in self.copied_on_read:
                    value.kept = True
                    value.readers += 1
                    value.owner, value.number = "variable", variable
                    self.variables[variable] = value
                    old.kept = False
                    self.drop(old)
                    continue
            copies = variable in self.copied_on_read and node.op.kind not in COPY_ON_READ
            if old is not None and (old.readers > 1 or copies):
                new = self.take("variable", variable, old.size_bytes, kept=True)
                self.variables[variable] = new
                old.kept = False
                self.drop(old)

    def end(self, number: int) -> list[int]:
        """The kernel has run: temporaries and inputs are let go. Returns the nodes that are ready now."""
        node = self.graph.nodes[number]
        for buffer in self.temporaries.pop(number, ()):
            self.drop(buffer)
        for tensor in node.inputs:
            self.drop(self.bound.get(tensor))
        for tensor in node.outputs:
            self.drop(self.bound.get(tensor))
        ready = []
        for consumer in self.consumers[number]:
            self.pending[consumer] -= 1
            if self.pending[consumer] == 0:
                ready.append(consumer)
        return ready


@dataclass(frozen=True, slots=True)
class _Plan:
    """What running a node does, worked out once."""

    shares: tuple[int | None, ...]
    reuses: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    temporaries: tuple[int, ...]
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
        self.plans = [plan(node, kernels) for node in graph.nodes]


def plan(node: Node, kernels: Kernels) -> _Plan:
    op = node.op
    outputs = range(len(op.outputs))
    how = "assign" if op.kind in ASSIGNS else "update" if node.variables and updates(op) else None
    return _Plan(
        shares=tuple(within(kernels.shares(op, k), node) for k in outputs),
        reuses=tuple(tuple(i for i in kernels.may_reuse(op, k) if i < len(node.inputs)) for k in outputs),
        sizes=tuple(kernels.output_bytes(op, k) for k in outputs),
        temporaries=kernels.temporaries(op),
        lends=kernels.lends(op),
        seconds=kernels.seconds(op),
        cheap=kernels.is_cheap(op),
        variable=how,
    )


def within(share: int | None, node: Node) -> int | None:
    """An element of a list that was never set has nothing to share: it is made of zeros."""
    return share if share is not None and share < len(node.inputs) else None


def wire(graph: Graph) -> tuple[list[list[int]], list[int], list[int]]:
    """For each node who waits for it (once, in the graph's order), how many it waits for; for each tensor how often it is read."""
    maker: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        for tensor in node.outputs:
            maker[tensor] = number
    consumers: list[list[int]] = [[] for _ in graph.nodes]
    waits = [0] * len(graph.nodes)
    reads = [0] * len(graph.tensors)
    for number, node in enumerate(graph.nodes):
        for tensor in node.inputs:
            reads[tensor] += 1
        before = {maker[tensor] for tensor in node.inputs if tensor in maker} | set(node.after)
        waits[number] = len(before)
        for earlier in before:
            consumers[earlier].append(number)
    for tensor in graph.returned:
        reads[tensor] += 1
    return consumers, waits, reads
