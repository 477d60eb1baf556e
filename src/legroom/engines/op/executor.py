"""TensorFlow's executor, simulated: which node runs when, and when each buffer is taken and let go.

After `executor.cc` and Eigen's thread pool: one thread runs the graph's source, which makes all ready that waits for nothing. A thread runs a node and then, first in first out, the cheap nodes that it made
ready; of the expensive ones it keeps the last if it has nothing else to do, and hands the others to the pool, where a thread takes
its own newest task first and steals the oldest of others. Every kernel counts as expensive on a CPU, none on a GPU. A buffer is
freed when its last reader has run; a kernel may take over an input's buffer that nobody else will read.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from legroom.engines.bfc import OutOfMemory
from legroom.engines.ledger import Allocator, Held, Ledger, Owner
from legroom.engines.op.awaited import drawn
from legroom.engines.op.clock import Clock
from legroom.engines.op.graph import Node
from legroom.engines.op.ops import Op
from legroom.engines.op.planned import Plan, Planned
from legroom.engines.op.sharing import COPY_ON_READ

SPREAD = 0.7  # of a kernel's time from run to run, as a power of two


@dataclass(slots=True)
class Thread:
    """One of the pool's: what it will run itself, what others may take from it, what it runs."""

    inline: deque[int] = field(default_factory=deque)
    tasks: deque[int] = field(default_factory=deque)
    running: int | None = None
    # A node for which there was no room, as long as others may make some.
    waiting: tuple[int, OutOfMemory] | None = None


class Executor(Ledger):
    """Runs a graph's steps one after the other on one allocator; variables, arguments and constants live through all of them."""

    spread = SPREAD

    def __init__(
        self, planned: Planned, allocator: Allocator, threads: int, seed: int = 0, *, waits: list[int] | None = None
    ) -> None:
        """`seed`: another one makes kernels take other times, and so lets them run in another order that might happen as well.
        `waits`: for how many others each node waits, if not as the graph says."""
        super().__init__(allocator)
        self.graph = planned.graph
        self.kernels = planned.kernels
        self.plans, self.copied_on_read = planned.plans, planned.copied_on_read
        self.reads = planned.reads
        self.consumers = drawn(planned.consumers, planned.sums, Random(seed)) if seed else planned.consumers
        self.waits = planned.waits if waits is None else waits
        self.threads = threads
        self.seed, self.random = seed, Random(seed) if seed else None
        self.variables: list[Held | None] = []
        self.fixed: dict[int, Held | None] = {}
        self.bound: dict[int, Held | None] = {}
        self.temporaries: dict[int, list[Held]] = {}
        self.is_short = False  # some thread waits for room
        self.step_seconds = 0.0  # that the last step took, by its kernels' own times
        order = self.sources()
        Random(seed).shuffle(order)
        self.first = [number for group in order for number in group]

    def sources(self) -> list[list[int]]:
        """What the thread that runs the graph's source finds ready, by the arguments and variables that are read: it comes to these
        in another order in every process, since the source's edges are a set of pointers."""
        groups: dict[object, list[int]] = {}
        for number, waits in enumerate(self.waits):
            if waits == 0:
                node = self.graph.nodes[number]
                reads = (("variable", *node.variables[:1]), ("tensor", *node.inputs[:1]), ("node", number))
                groups.setdefault(next(read for read in reads if len(read) > 1), []).append(number)
        return list(groups.values())

    def place(self, made: Sequence[tuple[tuple[int, ...], int]] | None = None) -> None:
        """Takes memory for what exists before the first step: variables in the order in which they were made (those that begin as one
        tensor, and how many drafts of it were held meanwhile), then the step's arguments and constants."""
        self.variables = [None] * len(self.graph.variables)
        for group, drafts in made if made is not None else [((i,), 0) for i in range(len(self.variables))]:
            size = self.graph.variables[group[0]].size_bytes
            buffer = self.make(group[0], size, drafts, shared_by=len(group))
            for variable in group:
                self.variables[variable] = buffer
        groups: tuple[tuple[Owner, tuple[int, ...]], ...]
        groups = (("argument", self.kept_arguments()), ("constant", self.graph.constants))
        for owner, tensors in groups:
            for number, tensor in enumerate(tensors):
                self.fixed[tensor] = self.take(owner, number, self.size_of(tensor), readers=1, kept=True)

    def kept_arguments(self) -> tuple[int, ...]:
        """Those that are there before the first step, and after the last."""
        return self.graph.arguments

    def size_of(self, tensor: int) -> int:
        return self.kernels.output_bytes(Op("", "_Arg", (), (self.graph.tensors[tensor],)), 0)

    def step(self) -> None:
        """Runs every node once."""
        self.bound, self.is_short = {}, False
        self.bind_fixed()
        self.pending = list(self.waits)
        pool = [Thread() for _ in range(self.threads)]
        self.hand_out(pool[0], self.first)
        clock = self.kernels.clock()
        idle: list[int] = []
        for i in range(self.threads):
            self.begin_next(pool, i, clock, idle)
        self.require_progress(pool, clock)
        while clock:
            i = clock.end_next()
            thread = pool[i]
            assert thread.running is not None
            ended, thread.running = thread.running, None
            self.hand_on(pool, i, ended, clock, idle)
            if self.is_short:
                for j, other in enumerate(pool):
                    if other.waiting is not None:
                        self.start(pool, j, other.waiting[0], clock)
                self.is_short = any(other.waiting is not None for other in pool)
            self.begin_next(pool, i, clock, idle)
            while idle and any(thread.tasks for thread in pool):
                self.begin_next(pool, idle.pop(0), clock, idle)
            if self.is_short:
                self.require_progress(pool, clock)
        self.step_seconds = clock.now
        self.give_back([self.bound.get(tensor) for tensor in self.graph.returned])

    def give_back(self, returned: list[Held | None]) -> None:
        """The step is over: whoever called it has no use for what it returned."""
        for buffer in returned:
            self.drop(buffer)

    def bind_fixed(self) -> None:
        """What the step finds there: its arguments and constants."""
        for tensor in (*self.kept_arguments(), *self.graph.constants):
            buffer = self.fixed[tensor]
            if buffer is not None:
                buffer.readers += self.reads[tensor]
            self.bound[tensor] = buffer

    def require_progress(self, pool: list[Thread], clock: Clock) -> None:
        """Out of memory is when one waits for room and nobody runs who could make some."""
        stuck = next((thread.waiting for thread in pool if thread.waiting is not None), None)
        if not clock and stuck is not None:
            raise stuck[1]

    def hand_on(self, pool: list[Thread], i: int, ended: int, clock: Clock, idle: list[int]) -> None:
        """A thread has run that node: what it made ready is the thread's to run, or to hand out."""
        self.hand_out(pool[i], self.end(ended))

    def hand_out(self, thread: Thread, ready: list[int]) -> None:
        """Cheap nodes stay with the thread; of expensive ones the last does, if nothing else is left to do."""
        expensive = []
        for node in ready:
            if self.is_cheap(node):
                thread.inline.append(node)
            else:
                expensive.append(node)
        if expensive and not thread.inline:
            thread.inline.append(expensive.pop())
        for node in expensive:
            thread.tasks.appendleft(node)

    def is_cheap(self, node: int) -> bool:
        return self.plans[node].cheap

    def begin_next(self, pool: list[Thread], i: int, clock: Clock, idle: list[int]) -> None:
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
        self.start(pool, i, node, clock)

    def start(self, pool: list[Thread], i: int, node: int, clock: Clock) -> None:
        """Starts a node, or lets its thread wait for memory: TensorFlow tries again for ten seconds while others run."""
        thread = pool[i]
        try:
            self.begin(node)
        except OutOfMemory as error:
            thread.waiting, self.is_short = (node, error), True
            return
        thread.running, thread.waiting = node, None
        seconds = self.plans[node].seconds
        if self.random is not None:
            seconds *= 2 ** self.random.uniform(-self.spread, self.spread)
        clock.start(i, seconds)

    def begin(self, number: int) -> None:
        """The kernel starts: outputs and temporaries are taken, in its own order."""
        node, plan = self.graph.nodes[number], self.plans[number]
        self.moment += 1
        self.schedule.append(number)
        before, bound = len(self.buffers), []
        try:
            if plan.variable is not None:
                self.change_variable(node, plan.variable)
            if plan.outputs_last:
                self.take_temporaries(number, node, plan)
            for k, tensor in enumerate(node.outputs):
                buffer = self.buffer_for(number, node, plan, k)
                if buffer is not None:
                    readers = self.reads[tensor] + 1  # and the running kernel itself, until it ends
                    buffer.readers += readers
                    bound.append((buffer, readers))
                self.bound[tensor] = buffer
            if not plan.outputs_last:
                self.take_temporaries(number, node, plan)
        except OutOfMemory:
            self.take_back(before, bound)
            raise

    def take_back(self, before: int, bound: list[tuple[Held, int]]) -> None:
        """As if the kernel had not been started."""
        for buffer, readers in bound:
            buffer.readers -= readers
        for buffer in self.buffers[before:]:
            if buffer.owner in ("output", "temporary"):
                self.allocator.free(buffer.address)
        self.buffers[before:] = [buffer for buffer in self.buffers[before:] if buffer.owner == "variable"]
        self.schedule.pop()
        self.moment -= 1

    def take_temporaries(self, number: int, node: Node, plan: Plan) -> None:
        if plan.temporaries:
            sizes = list(plan.temporaries)
            for position in plan.lends:
                lent = self.bound.get(node.inputs[position])
                if lent is not None and lent.readers == 1 and not lent.kept and lent.size_bytes in sizes:
                    sizes.remove(lent.size_bytes)
            taken = [self.take("temporary", number, size, readers=1) for size in sizes]
            self.temporaries[number] = [buffer for buffer in taken if buffer is not None]

    def buffer_for(self, number: int, node: Node, plan: Plan, k: int) -> Held | None:
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
                new = self.take("variable", variable, old.size_bytes, readers=1, kept=True)
                self.variables[variable] = new
                old.kept = False
                self.drop(old)

    def end(self, number: int) -> list[int]:
        """The kernel has run: temporaries, the last one first, and inputs are let go. Returns the nodes that are ready now."""
        node = self.graph.nodes[number]
        for buffer in reversed(self.temporaries.pop(number, ())):
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
