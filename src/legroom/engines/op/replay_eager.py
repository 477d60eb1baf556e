"""An eager step's trace, replayed on the simulated allocator: a tensor lives until Python and the tape let go of it."""

from legroom.engines.creation import RANDOM_DRAFTS
from legroom.engines.ledger import Allocator, Held, Ledger, Owner, tell_second_step
from legroom.engines.op.kernels import CpuKernels
from legroom.engines.op.ops import Op
from legroom.engines.op.sharing import COPY_ON_READ, updates
from legroom.engines.op.simulate import Machine, Outcome, instruction, program_of
from legroom.engines.op.trace import EagerTrace, Ran
from legroom.engines.owners import flat
from legroom.records.program import Buffer, Category, Program


def simulate_eager(trace: EagerTrace, machine: Machine) -> Outcome:
    """Replay the trace twice on one allocator and tell the second time. Nothing in it is left to chance: one run will do."""
    allocator = machine.allocator()
    replay = EagerReplay(trace, machine, allocator)
    failure = tell_second_step(replay, allocator, replay.place, replay.name)
    peak = allocator.peak_in_use_bytes
    return Outcome(replay.program(peak), (peak,), allocator.peak_reserved_bytes, failure)


class EagerReplay(Ledger):
    """One allocator with what the steps hold on it."""

    def __init__(self, trace: EagerTrace, machine: Machine, allocator: Allocator) -> None:
        super().__init__(allocator)
        self.trace = trace
        self.kernels = machine.kernels
        self.on_cpu = isinstance(machine.kernels, CpuKernels)
        self.bound: dict[int, Held | None] = {}
        self.fixed: dict[int, Held | None] = {}
        self.leftover: dict[int, Held | None] = {}
        self.slots = slots_of(trace)
        self.copied_on_read = {
            event.inputs[0] for event in trace.events if isinstance(event, Ran) and event.op.kind in COPY_ON_READ
        }

    def place(self) -> None:
        """Variables, constants and the batch are there before the step."""
        made = {
            event.outputs[0]
            for event in self.trace.events
            if isinstance(event, Ran) and event.op.kind == "VarHandleOp" and event.outputs
        }
        there = [(number, resident) for number, resident in self.trace.residents.items() if number not in made]
        for number, resident in sorted(there, key=lambda pair: pair[1].role != "variable"):
            size = self.kernels.output_bytes(Op("", "_Arg", (), (resident.array,)), 0)
            if resident.role == "variable":
                is_random = len(resident.array.shape) > 1 and number not in self.slots
                self.fixed[number] = self.make(number, size, RANDOM_DRAFTS if is_random else 0)
            else:
                is_free = resident.role == "constant" and self.on_cpu
                self.fixed[number] = self.take("argument", number, 0 if is_free else size, readers=1)

    def name(self, owner: Owner, number: int) -> str:
        """What was being made: an op and the user's line, or a variable."""
        if owner in ("output", "temporary"):
            event = self.ran(number)
            return event.op.kind + (f" at {event.line}" if event.line else "")
        resident = self.trace.residents.get(number)
        return (resident.name if resident is not None else None) or owner

    def ran(self, position: int) -> Ran:
        event = self.trace.events[position]
        assert isinstance(event, Ran)
        return event

    def find(self, number: int) -> Held | None:
        return self.bound[number] if number in self.bound else self.fixed.get(number)

    def step(self) -> None:
        """All events, in their order; what the step returns is let go at its end."""
        self.bound = {}
        for position, event in enumerate(self.trace.events):
            if isinstance(event, Ran):
                self.run(position, event)
            elif event.tensor in self.bound:
                self.drop(self.bound.pop(event.tensor))
        kept = frozenset(self.trace.kept)
        for number in list(self.bound):
            if number in kept:  # a name of the loop's: it holds this until the next turn has made its successor
                self.drop(self.leftover.pop(number, None))
                self.leftover[number] = self.bound.pop(number)
            else:
                self.drop(self.bound.pop(number))

    def run(self, position: int, event: Ran) -> None:
        self.moment += 1
        self.schedule.append(position)
        op = event.op
        successors: list[int] = []
        taken = self.take_temporaries(position, op) if self.kernels.outputs_last(op) else []
        if op.kind == "AssignVariableOp" or updates(op):
            self.change_variable(event)
        for k, number in enumerate(event.outputs):
            if op.kind == "VarHandleOp":
                resident = self.trace.residents.get(number)
                if number not in self.fixed:  # a later step finds the variable that the first one made
                    self.fixed[number] = self.make(number, resident.array.size_bytes if resident else 0, 0)
                continue
            if number in self.leftover:
                successors.append(number)
            shared = self.shared(event, k)
            if shared is None:
                size = self.kernels.output_bytes(op, k)
                self.bound[number] = (
                    None if op.kind == "_EagerConst" and self.on_cpu else self.take("output", position, size, readers=1)
                )
                continue
            held = self.bound[number] = self.find(shared)
            if held is not None:
                held.readers += 1
        taken = taken or self.take_temporaries(position, op)
        for held in reversed(taken):
            self.drop(held)
        for number in successors:
            self.drop(self.leftover.pop(number))

    def take_temporaries(self, position: int, op: Op) -> list[Held | None]:
        return [self.take("temporary", position, size, readers=1) for size in self.kernels.temporaries(op)]

    def shared(self, event: Ran, output: int) -> int | None:
        """The tensor whose memory this output is."""
        aliases = event.op.attributes.get("aliases")
        if aliases:
            what, _, number = (aliases[output] or "").partition("_")
            return {"input": event.inputs, "output": event.outputs}[what][int(number)] if number else None
        share = self.kernels.shares(event.op, output)
        if share is None or share >= len(event.inputs):
            return None
        return None if event.inputs[share] in self.copied_on_read else event.inputs[share]

    def change_variable(self, event: Ran) -> None:
        """A value that is assigned becomes the variable; one that somebody still reads is not written to, but copied first."""
        if event.op.kind == "AssignVariableOp":
            number, value = event.inputs[0], self.find(event.inputs[1])
            if value is not None and number in self.fixed and number not in self.copied_on_read:
                value.readers += 1
                value.owner, value.number = "variable", number
                self.drop(self.fixed[number])
                self.fixed[number] = value
                return
        for place in updates(event.op) or (0,):
            number = event.inputs[place] if place < len(event.inputs) else -1
            old = self.fixed.get(number)
            copies = number in self.copied_on_read and event.op.kind not in COPY_ON_READ
            if old is not None and (old.readers > 1 or copies):
                self.fixed[number] = self.take("variable", number, old.size_bytes, readers=1, kept=True)
                self.drop(old)

    def program(self, total_bytes: int) -> Program:
        events = (self.ran(position) for position in self.schedule)
        buffers = (
            Buffer(
                *(self.kind(held), 0, held.address, held.size_bytes, birth, death),
                *(self.category(held), self.layer(held)),
            )
            for held, birth, death in self.told()
        )
        schedule = (instruction(event.op, event.op.kind, event.line or event.op.name) for event in events)
        return program_of(schedule, buffers, total_bytes)

    def kind(self, held: Held) -> str:
        return self.ran(held.number).op.kind if held.owner in ("output", "temporary") else held.owner

    def layer(self, held: Held) -> str:
        """The Keras layer, where the op ran inside one; else the user's line."""
        if held.owner not in ("output", "temporary"):
            return ""
        event = self.ran(held.number)
        return event.op.name.rpartition("/")[0] or event.line or ""

    def category(self, held: Held) -> Category:
        if held.owner == "temporary":
            return "workspace"
        if held.owner == "output":
            return "activations"
        resident = self.trace.residents.get(held.number)
        if resident is not None and resident.role == "batch":
            return "inputs"
        if held.owner != "variable":
            return "other"
        return "optimizer" if held.number in self.slots else "weights"


def slots_of(trace: EagerTrace) -> frozenset[int]:
    """The variables that are an optimizer's: Keras names them after the weight they belong to (`adam/dense_kernel_momentum`)."""
    names = {
        number: (resident.name or "").partition(":")[0]
        for number, resident in trace.residents.items()
        if resident.role == "variable"
    }
    weights = tuple(flat(name) + "_" for name in names.values() if name)
    return frozenset(
        number for number, name in names.items() if "/" in name and name.rpartition("/")[2].startswith(weights)
    )
