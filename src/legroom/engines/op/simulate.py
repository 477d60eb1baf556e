"""A step's graph, run on the simulated executor and allocator: its `Program`, and between which its peak lies.

How kernels fall out in time decides which of two ready ones runs first, and with it the peak. So the step is run several
times with other durations; the middle one is shown, and all of them make the bounds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from legroom.engines.layer_names import LayerNames
from legroom.engines.op.bfc import Bfc, OutOfMemory
from legroom.engines.op.executor import Buffer as Held
from legroom.engines.op.executor import Executor, Kernels, Planned
from legroom.engines.op.graph import Graph
from legroom.engines.op.kernels import flops
from legroom.records.program import Allocation, Buffer, Category, Instruction, Program
from legroom.records.simulation import Failure
from legroom.records.step import Step

WARM_UP_STEPS = 1  # the first step finds the memory in another state than all later ones
SEEDS = (0, 1, 2, 3, 4)
MANY_NODES = 15_000  # from here on three runs must do
RANDOM_DRAFTS = (
    2  # tensors that a random initial value passes through: drawn, scaled, and shifted into the variable itself
)
ROLES: dict[str, Category] = {"weight": "weights", "state": "weights", "optimizer": "optimizer", "input": "inputs"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What the step runs on: kernels, an allocator (a new one for each run), and the threads that run ops."""

    kernels: Kernels
    allocator: Callable[[], Bfc]
    threads: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What several runs of a step came to. `failure` is that of the first run that found no room, if one did."""

    program: Program
    peaks: tuple[int, ...]
    reserved_bytes: int
    failure: Failure | None = None


def simulate_graph(step: Step, graph: Graph, machine: Machine, seeds: tuple[int, ...] = SEEDS) -> Outcome:
    """Run the graph several times; the run with the middle peak is told.

    Threads sometimes get further than the machine's cores would let them: two runs with one thread more are for the bounds.
    """
    seeds = seeds[:3] if len(graph.nodes) > MANY_NODES else seeds
    planned = Planned(graph, machine.kernels)
    names = Names(step, graph)
    runs = [run(planned, names, machine, seed) for seed in seeds]
    failure = next((found.failure for found in runs if found.failure is not None), None)
    runs.sort(key=lambda found: found.peak_bytes)
    middle = runs[len(runs) // 2]
    busier = replace(machine, threads=machine.threads + 1)
    more = [run(planned, names, busier, seed) for seed in seeds[:2]] if len(seeds) > 1 else []
    peaks = tuple(found.peak_bytes for found in (*runs, *more))
    program = names.program(middle.executor, middle.peak_bytes)
    return Outcome(program, peaks, middle.allocator.peak_reserved_bytes, failure)


@dataclass(frozen=True, slots=True)
class Run:
    """The graph's second step on an allocator of its own."""

    peak_bytes: int
    executor: Executor
    allocator: Bfc
    failure: Failure | None


def run(planned: Planned, names: "Names", machine: Machine, seed: int) -> Run:
    allocator = machine.allocator()
    executor = Executor(planned, allocator, machine.threads, seed)
    failure = None
    try:
        executor.place(names.creation())
        for _ in range(WARM_UP_STEPS):
            executor.step()
        allocator.reset_peak()
        executor.start_recording()
        executor.step()
    except OutOfMemory as error:
        shortage = error.shortage
        failure = Failure(
            names.asking(*executor.asking),
            shortage.requested_bytes,
            shortage.free_bytes,
            shortage.largest_free_bytes,
            shortage.fragmented,
        )
    return Run(allocator.peak_in_use_bytes, executor, allocator, failure)


class Names:
    """Whose a buffer is: the layer and the category of nodes, variables and arguments."""

    def __init__(self, step: Step, graph: Graph) -> None:
        self.graph = graph
        self.layers = LayerNames(step.layers, (node.op.name for node in graph.nodes))
        self.optimizer = (step.optimizer or "").lower()
        places = graph.parameters
        count = len(graph.variables)
        self.variables = [step.parameters[i] if i >= 0 else None for i in places[:count]]
        self.arguments = [step.parameters[i] if i >= 0 else None for i in places[count:]]

    def creation(self) -> list[tuple[int, int]]:
        """The variables in the order in which they were made; a random weight is made in three passes, each a new tensor."""
        ranks = {"weight": 0, "state": 0, "other": 0, "optimizer": 1, "metric": 2}
        roles = ["other" if tensor is None else tensor.role for tensor in self.variables]
        order = sorted(range(len(roles)), key=lambda i: (ranks.get(roles[i], 0), self.graph.parameters[i]))
        is_random = [roles[i] == "weight" and len(self.graph.variables[i].shape) > 1 for i in range(len(roles))]
        return [(i, RANDOM_DRAFTS if is_random[i] else 0) for i in order]

    def asking(self, owner: str, number: int) -> str:
        """What was being made when memory ran out."""
        if owner in ("output", "temporary"):
            op = self.graph.nodes[number].op
            return f"{op.name} ({op.kind})"
        tensor = self.variables[number] if owner == "variable" and number < len(self.variables) else None
        return tensor.name if tensor is not None else owner

    def category(self, buffer: Held) -> Category:
        if buffer.owner == "variable":
            tensor = self.variables[buffer.number] if buffer.number < len(self.variables) else None
            return ROLES.get(tensor.role, "other") if tensor is not None else "other"
        if buffer.owner == "argument":
            tensor = self.arguments[buffer.number] if buffer.number < len(self.arguments) else None
            return ROLES.get(tensor.role, "other") if tensor is not None else "inputs"
        if buffer.owner == "constant":
            return "other"
        if buffer.owner == "temporary":
            return "workspace"
        return self.category_of_op(self.graph.nodes[buffer.number].op.name)

    def category_of_op(self, name: str) -> Category:
        first = name.partition("/")[0]
        if first in ("gradient_tape", "gradients"):
            return "gradients"
        return "optimizer" if self.optimizer and first.startswith(self.optimizer) else "activations"

    def layer(self, buffer: Held) -> str:
        if buffer.owner == "variable":
            tensor = self.variables[buffer.number] if buffer.number < len(self.variables) else None
            return tensor.layer if tensor is not None else ""
        if buffer.owner in ("argument", "constant"):
            return ""
        return self.layers.find(self.graph.nodes[buffer.number].op.name)

    def program(self, executor: Executor, total: int) -> Program:
        """What the recorded step held, as every engine tells it."""
        schedule = []
        for number in executor.schedule:
            op = self.graph.nodes[number].op
            moved = sum(array.size_bytes for array in op.inputs) + sum(array.size_bytes for array in op.outputs)
            schedule.append(Instruction(op.name, op.kind, op.name, flops(op), moved))
        buffers = tuple(self.buffers(executor))
        return Program(tuple(schedule), (Allocation(0, total, "temporary"),), buffers, total)

    def buffers(self, executor: Executor) -> Iterator[Buffer]:
        start, end = executor.recorded_from, executor.moment
        for held in executor.buffers:
            death = end if held.death is None else held.death
            if death > start:
                name = self.asking(held.owner, held.number)
                yield Buffer(
                    name,
                    0,
                    held.address,
                    held.size_bytes,
                    max(0, held.birth - start - 1),
                    death - start - 1,
                    self.category(held),
                    self.layer(held),
                )
