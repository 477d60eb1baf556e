"""A step's graph, run on the simulated executor and allocator: its `Program`, and between which its peak lies.

How kernels fall out in time decides which of two ready ones runs first, and with it the peak. So the step is run several
times with other durations; the middle one is shown (on a CPU that of more steps of each: `middle`), and all of them make the bounds.

An allocator that has served some steps cuts its chunks in other ways than a new one: on a CPU, where ops run in another order at
every step, peaks climb for ten steps and more before they fall again (a small BERT: 646 to 792 MiB; simulated 645 to 761). So two of the runs go on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from legroom.engines.creation import Kind, creation
from legroom.engines.layer_names import LayerNames
from legroom.engines.ledger import Allocator, Held, tell_further_steps, tell_second_step
from legroom.engines.op.crowding import Crowd, crowded_bytes, crowds
from legroom.engines.op.executor import Executor
from legroom.engines.op.graph import Graph
from legroom.engines.op.middle import middle_step, more_seeds, steps_after
from legroom.engines.op.op_counts import flops, moved_bytes
from legroom.engines.op.ops import Op
from legroom.engines.op.planned import Kernels, Planned
from legroom.records.program import Allocation, Buffer, Category, Instruction, Program
from legroom.records.simulation import Failure
from legroom.records.step import Role, Step

SEEDS = (0, 1, 2, 3, 4)
MANY_NODES = 15_000  # from here on three runs must do
FURTHER_STEPS = 14
GOING_ON = (1, 2)  # the runs that make them
FURTHER_NODES = 150_000  # that a run's further steps may have in all
ROLES: dict[str, Category] = {"weight": "weights", "state": "weights", "optimizer": "optimizer", "input": "inputs"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What the step runs on: kernels, an allocator (a new one for each run), and the threads that run ops. `drifts`: they run them in
    another order at every step. `executor`: what runs them. `told_steps`: of each run, from its second on, among which the one that is told is chosen. `timed`: kernels' times are the machine's own."""

    kernels: Kernels
    allocator: Callable[[], Allocator]
    threads: int
    drifts: bool = False
    executor: type[Executor] = Executor
    told_steps: int = 1
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What several runs of a step came to. `peaks` are those of the runs and, where loops can crowd, of the same runs if they had;
    `later_peaks` those of further steps, `step_seconds` is how long a step takes in the middle one of them. `failure` is that of the first run that found no room, if one did."""

    program: Program
    peaks: tuple[int, ...]
    reserved_bytes: int
    failure: Failure | None = None
    later_peaks: tuple[int, ...] = ()
    step_seconds: float | None = None  # where kernels' times are known, a CPU's


def simulate_graph(step: Step, graph: Graph, machine: Machine, seeds: tuple[int, ...] = SEEDS) -> Outcome:
    """Run the graph several times; the run with the middle peak is told, or the step of them all that has it.

    Threads sometimes get further than the machine's cores would let them: two of the runs have one thread more.
    """
    seeds = seeds[:3] if len(graph.nodes) > MANY_NODES else seeds
    planned = Planned(graph, machine.kernels)
    names = Names(step, graph)
    usual = [run(planned, names, machine, seed) for seed in seeds]
    busier = replace(machine, threads=machine.threads + 1)
    runs = usual + [run(planned, names, busier, seed) for seed in seeds[:2] if len(seeds) > 1]
    runs.sort(key=lambda found: found.peak_bytes)
    peaks = peaks_of(runs, planned)
    after = steps_after(len(graph.nodes), machine.told_steps)
    told = None if after else runs[len(runs) // 2].tell(names)
    beside: list[int] = []
    drifting = further_steps(graph) if machine.drifts else 0
    counts = [max(after, drifting) if i in GOING_ON else after for i in range(len(usual))]
    further = [each.go_on(count, names) for each, count in zip(usual, counts, strict=True)]
    if told is None:
        later = (climbed[:after] for climbed, _ in further)
        known = [[each.peak_bytes, *some] for each, some in zip(usual, later, strict=True)]
        told, *beside = told_step(planned, names, machine, (seeds, known), after)
    program, reserved = told
    failures = (*(each.failure for each in usual), *(failed for _, failed in further))
    failure = next((failed for failed in failures if failed is not None), None)
    later_peaks = (*(peak for climbed, _ in further for peak in climbed), *beside)
    return Outcome(program, peaks, reserved, failure, later_peaks, step_seconds(usual) if machine.timed else None)


def told_step(
    planned: Planned, names: "Names", machine: Machine, known: tuple[tuple[int, ...], list[list[int]]], after: int
) -> tuple[tuple[Program, int], int]:
    """The step with the middle peak, and that peak: of the runs whose steps are `known`, and of more where the graph is small. In each process what is
    ready at first comes in an order of its own, which decides where a large array finds room for good."""
    seeds, peaks = known[0] + more_seeds(len(planned.graph.nodes)), list(known[1])
    for seed in seeds[len(peaks) :]:
        found = run(planned, names, machine, seed)
        peaks.append([found.peak_bytes, *found.go_on(after, names)[0]])
    which, more = middle_step(peaks)
    again = run(planned, names, machine, seeds[which])  # a seed's steps are the same each time
    again.go_on(more, names)
    return again.tell(names), peaks[which][more]


def peaks_of(runs: Sequence["Run"], planned: Planned) -> tuple[int, ...]:
    """Those of the runs and, where loops can crowd, of the same runs if they had."""
    peaks = tuple(found.peak_bytes for found in runs)
    found = crowds(planned.graph, planned.plans)
    return peaks + tuple(each.crowded_bytes(found) for each in runs if found and each.failure is None)


def step_seconds(runs: Sequence["Run"]) -> float | None:
    """Of the step that each run made last; nothing where one found no room."""
    return None if any(each.failure for each in runs) else median(each.executor.step_seconds for each in runs)


def further_steps(graph: Graph) -> int:
    return min(FURTHER_STEPS, FURTHER_NODES // max(1, len(graph.nodes)))


@dataclass(frozen=True, slots=True)
class Run:
    """The graph's second step on an allocator of its own."""

    peak_bytes: int
    executor: Executor
    allocator: Allocator
    failure: Failure | None

    def go_on(self, steps: int, names: "Names") -> tuple[list[int], Failure | None]:
        """The peaks of further steps on the same allocator, and whether there was no room for one; of one that failed there are none."""
        if self.failure is not None:
            return [], None
        return tell_further_steps(self.executor, self.allocator, steps, names.asking)

    def tell(self, names: "Names") -> tuple[Program, int]:
        """The step that was run last, and what the allocator has reserved so far."""
        program = names.program(self.executor, self.allocator.peak_in_use_bytes)
        return program, self.allocator.peak_reserved_bytes

    def crowded_bytes(self, found: Sequence[Crowd]) -> int:
        """The peak if loops had crowded; of the second step, before any further one."""
        return crowded_bytes(found, self.executor.schedule, self.executor.told(), self.peak_bytes)


def run(planned: Planned, names: "Names", machine: Machine, seed: int) -> Run:
    allocator = machine.allocator()
    executor = machine.executor(planned, allocator, machine.threads, seed)
    failure = tell_second_step(executor, allocator, lambda: executor.place(names.creation()), names.asking)
    return Run(allocator.peak_in_use_bytes, executor, allocator, failure)


def instruction(op: Op, name: str, where: str) -> Instruction:
    """One op that ran, as every engine tells it."""
    return Instruction(name, op.kind, where, flops(op), moved_bytes(op), 1)


def program_of(schedule: Iterable[Instruction], buffers: Iterable[Buffer], total_bytes: int) -> Program:
    return Program(tuple(schedule), (Allocation(0, total_bytes, "temporary"),), tuple(buffers), total_bytes)


class Names:
    """Whose a buffer is: the layer and the category of nodes, variables and arguments."""

    def __init__(self, step: Step, graph: Graph) -> None:
        self.graph = graph
        self.layers = LayerNames(step.layers, (node.op.name for node in graph.nodes))
        self.optimizer = (step.optimizer or "").lower()
        self.makes_slots = step.makes_slots
        count = len(graph.variables)
        places = graph.parameters or (-1,) * (count + len(graph.arguments))
        self.places = places
        self.variables = [step.parameters[i] if i >= 0 else None for i in places[:count]]
        self.arguments = [step.parameters[i] if i >= 0 else None for i in places[count:]]

    def creation(self) -> list[tuple[tuple[int, ...], int]]:
        """The variables in the order in which they were made."""
        roles: list[Role] = ["other" if tensor is None else tensor.role for tensor in self.variables]
        arrays = self.graph.variables
        kinds = [Kind(roles[i], arrays[i].shape, arrays[i].dtype, self.places[i]) for i in range(len(roles))]
        return creation(kinds, makes_slots=self.makes_slots)

    def asking(self, owner: str, number: int) -> str:
        """What was being made when memory ran out."""
        if owner in ("output", "temporary"):
            op = self.graph.nodes[number].op
            return f"{op.name} ({op.kind})"
        tensor = self.variables[number] if owner == "variable" else None
        return tensor.name if tensor is not None else owner

    def category(self, buffer: Held) -> Category:
        if buffer.owner == "variable":
            tensor = self.variables[buffer.number]
            return ROLES.get(tensor.role, "other") if tensor is not None else "other"
        if buffer.owner == "argument":
            tensor = self.arguments[buffer.number]
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
            tensor = self.variables[buffer.number]
            return tensor.layer if tensor is not None else ""
        if buffer.owner in ("argument", "constant"):
            return ""
        return self.layers.find(self.graph.nodes[buffer.number].op.name)

    def program(self, executor: Executor, total_bytes: int) -> Program:
        """What the recorded step held, as every engine tells it."""
        ops = (self.graph.nodes[number].op for number in executor.schedule)
        buffers = (
            Buffer(
                *(self.asking(held.owner, held.number), 0, held.address, held.size_bytes, birth, death),
                *(self.category(held), self.layer(held)),
            )
            for held, birth, death in executor.told()
        )
        return program_of((instruction(op, op.name, op.name) for op in ops), buffers, total_bytes)
