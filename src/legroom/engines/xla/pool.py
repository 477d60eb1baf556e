"""A compiled step in TensorFlow's pool: what its allocator adds to the compiler's total, and whether all of it finds room.

The compiler knows sizes, not places. On TensorFlow the variables lie in the pool first, then the batch, and the program's temporaries ask
for one piece. The allocator hands a hole out whole where less than 128 MiB of it would be left over. A variable that the step updates
stays where it is; but slots that began as one tensor (`engines/creation.py`) each get memory of their own in the first step, when all the
rest is held. So the first step may find no room for 4 bytes where the compiler's total is 70 MiB below the limit: seen on an H200, to the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from legroom.engines.bfc import Bfc, OutOfMemory
from legroom.engines.creation import Kind, creation
from legroom.engines.ledger import Held, Ledger, failure_of
from legroom.records.program import Program, Trial
from legroom.records.simulation import Failure
from legroom.records.step import Step
from legroom.units import MIB

GUARD_BYTES = 16 * MIB  # around what goes into a call that is timed
STEPS = 2  # the first, which gives slots memory of their own, and one like all others
UNLIMITED_BYTES = 2**46


@dataclass(frozen=True, slots=True)
class Pooled:
    """What the steps took at their fullest, what trying algorithms had left of that, and what found no room, if anything did."""

    peak_bytes: int
    left_bytes: int = 0
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The peak in the pool as the program is, what of it trying algorithms has left, the most that it takes if its temporaries are larger, and
    what finds no room then."""

    peak_bytes: int
    left_bytes: int
    high_bytes: int
    failure: Failure | None


class CompiledSteps(Ledger):
    """Steps of one program, whose temporaries are larger than was compiled by that share."""

    def __init__(self, step: Step, program: Program, allocator: Bfc, more: float) -> None:
        super().__init__(allocator)
        self.parameters = step.parameters
        self.makes_slots = step.makes_slots
        self.constants = [piece for piece in program.allocations if piece.kind == "constant"]
        self.pieces = [piece for piece in program.allocations if piece.kind in ("temporary", "output")]
        self.left_bytes = 0
        self.pool = allocator
        self.trials = program.trials
        self.more = more
        self.begun: list[tuple[Held | None, list[int]]] = []  # a tensor, and the variables that begin as it

    def place(self) -> None:
        """The program's constants, and the variables as they are made."""
        for piece in self.constants:
            self.take("constant", piece.index, piece.size_bytes, readers=1, kept=True)
        numbers = [i for i, tensor in enumerate(self.parameters) if tensor.role != "input"]
        tensors = [self.parameters[i] for i in numbers]
        kinds = [Kind(tensor.role, tensor.shape, tensor.dtype, i) for i, tensor in enumerate(tensors)]
        for group, drafts in creation(kinds, makes_slots=self.makes_slots):
            made = self.make(numbers[group[0]], tensors[group[0]].size_bytes, drafts)
            if len(group) > 1:
                self.begun.append((made, [numbers[i] for i in group]))

    def step(self) -> None:
        """The batch arrives, the program asks for its pieces, and slots that were one tensor part."""
        inputs = [i for i, tensor in enumerate(self.parameters) if tensor.role == "input"]
        held = [self.take("argument", i, self.parameters[i].size_bytes, readers=1) for i in inputs]
        if self.trials:
            for trial in self.trials:
                self.time(trial)
            self.trials = ()
            self.pool.reset_peak()
        for piece in self.pieces:
            share = self.more if piece.kind == "temporary" else 0
            held.append(self.take("temporary", piece.index, int(piece.size_bytes * (1 + share)), readers=1))
        for number in sorted(number for _, numbers in self.begun for number in numbers):
            self.take("variable", number, self.parameters[number].size_bytes, readers=1, kept=True)
        for each in (*held, *(made for made, _ in self.begun)):
            self.drop(each)
        self.begun = []
        self.moment += 1

    def time(self, trial: Trial) -> None:
        """A call is tried before the first step. If its hungriest algorithm finds no room, the last result that it had taken stays for good."""
        sizes = [*(size + GUARD_BYTES for size in trial.input_bytes), *[trial.output_bytes] * 2, trial.scratch_bytes]
        held: list[Held | None] = []
        try:
            held.extend(self.take("temporary", -1, size, readers=1) for size in sizes)
        except OutOfMemory:
            if len(held) > len(trial.input_bytes):
                held.pop()
                self.left_bytes += trial.output_bytes
        for each in held:
            self.drop(each)

    def asking_name(self) -> str:
        owner, number = self.asking
        if owner in ("variable", "argument"):
            return self.parameters[number].name
        return "the compiled program" if owner == "constant" else "the compiled program (its temporaries)"


def run_in(step: Step, program: Program, allocator: Bfc, more: float = 0.0) -> Pooled:
    """Some steps in that pool."""
    steps = CompiledSteps(step, program, allocator, more)
    try:
        steps.place()
        allocator.reset_peak()
        for _ in range(STEPS):
            steps.step()
    except OutOfMemory as error:
        return Pooled(allocator.peak_in_use_bytes, steps.left_bytes, failure_of(error, steps.asking_name()))
    return Pooled(allocator.peak_in_use_bytes, steps.left_bytes)


def settle_in(step: Step, program: Program, share: float, room_bytes: int, pool: Callable[[int], Bfc]) -> Settled:
    """In a pool of that size, as the program is and with temporaries that are larger by that share; where they find no room, in one without an end."""
    likely, most = (run_in(step, program, pool(room_bytes), more) for more in (0.0, share))
    if likely.failure is None and most.failure is None:
        return Settled(likely.peak_bytes, likely.left_bytes, max(likely.peak_bytes, most.peak_bytes), None)
    temporary = sum(piece.size_bytes for piece in program.allocations if piece.kind == "temporary")
    failure = likely.failure or (most.failure and replace(most.failure, more_bytes=int(share * temporary)))
    peak, high = (run_in(step, program, pool(UNLIMITED_BYTES), more).peak_bytes for more in (0.0, share))
    return Settled(peak, likely.left_bytes, high, failure)
