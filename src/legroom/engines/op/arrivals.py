"""A step on a card whose batch comes from the host, simulated: who makes it run in another order each time.

Kernels on a card are all launched by the thread that runs the graph's source, in one order, but for what comes from the host. There a batch is copied to memory that is taken when the source's thread gets to it (`_Recv`),
and what reads it goes on either in that thread or in one that was told of the copy's end; the same with the keys of random numbers, which are made on the host. Two or three threads then take and let go of memory side by side,
so that the same step fits into a torn pool at one time and not at another (an H200: an MLP and a network of 3-D convolutions ran out of memory in their third to ninth step, with a third of the pool free). What a step has returned is held until the next one is over: `logs = train_function(iterator)`.
"""

from math import exp, log
from random import Random

from legroom.engines.bfc import OutOfMemory
from legroom.engines.ledger import Allocator, Held
from legroom.engines.op import sharing
from legroom.engines.op.clock import Clock
from legroom.engines.op.executor import Executor, Thread
from legroom.engines.op.kernels import GLANCE_SECONDS
from legroom.engines.op.planned import Planned

MADE_ON_HOST = frozenset(("StatelessRandomGetKeyCounter",))
SOONEST_SECONDS, LATEST_SECONDS = 2e-6, 2e-4  # until another thread is told of a copy's end
ELSEWHERE = 0.5  # how often that is another thread
SPREAD = 1.5  # of the time that launching a kernel takes, as a power of two: threads are kept waiting by each other's


class ArrivingExecutor(Executor):
    """Runs a graph's steps one after the other; every step gets its arguments anew, and lets them go when they have been read. An argument is a node of its own here, numbered downwards from -1."""

    spread = SPREAD

    def __init__(self, planned: Planned, allocator: Allocator, threads: int, seed: int = 0) -> None:
        graph = planned.graph
        self.readers: dict[int, list[int]] = {
            -1 - place: [] for place, tensor in enumerate(graph.arguments) if planned.reads[tensor]
        }
        numbers = {graph.arguments[-1 - number]: number for number in self.readers}
        waits = list(planned.waits)
        for reader, node in enumerate(graph.nodes):
            for tensor in {tensor for tensor in node.inputs if tensor in numbers}:
                self.readers[numbers[tensor]].append(reader)
                waits[reader] += 1
        self.later: dict[int, list[int]] = {}  # what a thread will go on with
        self.last_returned: list[Held | None] = []
        self.luck = Random(seed)
        super().__init__(planned, allocator, threads, seed, waits=waits)

    def sources(self) -> list[list[int]]:
        return super().sources() + [[number] for number in self.readers]

    def kept_arguments(self) -> tuple[int, ...]:
        return ()

    def give_back(self, returned: list[Held | None]) -> None:
        """What was returned stays until the next step has returned."""
        super().give_back(self.last_returned)
        self.last_returned = returned

    def start(self, pool: list[Thread], i: int, node: int, clock: Clock) -> None:
        if node >= 0:
            super().start(pool, i, node, clock)
            return
        thread = pool[i]
        tensor = self.graph.arguments[-1 - node]
        try:
            held = self.take("argument", -1 - node, self.arriving_bytes(node))
        except OutOfMemory as error:
            thread.waiting, self.is_short = (node, error), True
            return
        if held is not None:
            held.readers += self.reads[tensor]
        self.bound[tensor] = held
        thread.running, thread.waiting = node, None
        clock.start(i, GLANCE_SECONDS)

    def arriving_bytes(self, number: int) -> int:
        """int32 is copied to the card like all else, unless only kernels on the host read it."""
        array = self.graph.tensors[self.graph.arguments[-1 - number]]
        ops = [self.graph.nodes[reader].op for reader in self.readers[number]]
        on_host = array.dtype == "int32" and ops and all(op.outputs and sharing.on_host(op, 0) for op in ops)
        return 0 if on_host else array.size_bytes

    def is_cheap(self, node: int) -> bool:
        """To wait for a copy is no work."""
        return node < 0 or super().is_cheap(node)

    def hand_on(self, pool: list[Thread], i: int, ended: int, clock: Clock, idle: list[int]) -> None:
        from_host = ended < 0 or self.graph.nodes[ended].op.kind in MADE_ON_HOST
        ready = self.later.pop(i) if i in self.later else self.end(ended)
        if ready and from_host and i not in self.later and idle and self.luck.random() < ELSEWHERE:
            other = idle.pop(0)
            pool[other].running, self.later[other] = ended, ready
            clock.start(other, exp(self.luck.uniform(log(SOONEST_SECONDS), log(LATEST_SECONDS))))
            return
        self.hand_out(pool[i], ready)

    def end(self, number: int) -> list[int]:
        if number >= 0:
            return super().end(number)
        ready = []
        for reader in self.readers[number]:
            self.pending[reader] -= 1
            if self.pending[reader] == 0:
                ready.append(reader)
        return ready
