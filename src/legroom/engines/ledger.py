"""What simulated steps hold of an allocator: every buffer, whose it is, and from which moment to which."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from legroom.engines.bfc import OutOfMemory
from legroom.records.simulation import Failure

WARM_UP_STEPS = 1  # the first step finds the memory in another state than all later ones
Owner = Literal["variable", "argument", "constant", "output", "temporary"]


class Allocator(Protocol):
    """What buffers are taken from: `legroom.engines.bfc.Bfc`, or `legroom.engines.cuda_pool.CudaPool`."""

    @property
    def peak_in_use_bytes(self) -> int: ...

    @property
    def peak_reserved_bytes(self) -> int: ...

    def reset_peak(self) -> None: ...

    def allocate(self, size_bytes: int) -> int: ...

    def free(self, address: int, /) -> None: ...


@dataclass(slots=True)
class Held:
    """A piece of memory that is held: by whom (a node, a variable, an argument, by number), and from which moment to which."""

    owner: Owner
    number: int
    size_bytes: int
    address: int
    birth: int
    death: int | None = None
    readers: int = 0
    kept: bool = False


class Ledger:
    """Takes buffers and lets them go when their last reader has; a moment is one op. Whoever runs steps is one."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.moment = 0
        self.recorded_from = 0
        self.schedule: list[int] = []
        self.buffers: list[Held] = []
        self.asking: tuple[Owner, int] = "variable", 0

    def take(self, owner: Owner, number: int, size_bytes: int, *, readers: int = 0, kept: bool = False) -> Held | None:
        """A new buffer, or None for nothing."""
        if size_bytes <= 0:
            return None
        self.asking = owner, number
        held = Held(owner, number, size_bytes, self.allocator.allocate(size_bytes), self.moment, None, readers, kept)
        self.buffers.append(held)
        return held

    def drop(self, held: Held | None) -> None:
        """One reader less."""
        if held is None:
            return
        held.readers -= 1
        if held.readers <= 0 and held.death is None:
            held.death = self.moment
            self.allocator.free(held.address)

    def make(self, variable: int, size_bytes: int, drafts: int, *, shared_by: int = 1) -> Held | None:
        """A variable as it is made: that many drafts of its first value are held meanwhile, and so many variables begin as this one."""
        held = [self.take("variable", variable, size_bytes, readers=1) for _ in range(drafts)]
        made = self.take("variable", variable, size_bytes, readers=shared_by, kept=True)
        for draft in held:
            self.drop(draft)
        return made

    def start_recording(self) -> None:
        """What is held from now on, and what runs, is what will be told."""
        self.recorded_from = self.moment
        self.schedule = []
        self.buffers = [held for held in self.buffers if held.death is None]

    def told(self) -> Iterator[tuple[Held, int, int]]:
        """What was held since, from which to which position of the schedule."""
        start = self.recorded_from + 1
        for held in self.buffers:
            death = self.moment if held.death is None else held.death
            if death >= start:
                yield held, max(0, held.birth - start), death - start

    def step(self) -> None:
        """Runs everything once."""
        raise NotImplementedError


def tell_second_step(
    ledger: Ledger, allocator: Allocator, place: Callable[[], None], name: Callable[[Owner, int], str]
) -> Failure | None:
    """Places what is there before the first step, then runs and records the second; if there was no room, who asked for it."""
    try:
        place()
        for _ in range(WARM_UP_STEPS):
            ledger.step()
        allocator.reset_peak()
        ledger.start_recording()
        ledger.step()
    except OutOfMemory as error:
        return failure_of(error, name(*ledger.asking))
    return None


def tell_further_steps(
    ledger: Ledger, allocator: Allocator, count: int, name: Callable[[Owner, int], str]
) -> tuple[list[int], Failure | None]:
    """The peaks of so many more steps; if there was no room for one, who asked for it. What was recorded before is gone."""
    peaks: list[int] = []
    try:
        for _ in range(count):
            allocator.reset_peak()
            ledger.start_recording()
            ledger.step()
            peaks.append(allocator.peak_in_use_bytes)
    except OutOfMemory as error:
        return peaks, failure_of(error, name(*ledger.asking))
    return peaks, None


def failure_of(error: OutOfMemory, asking: str) -> Failure:
    shortage = error.shortage
    return Failure(
        asking, shortage.requested_bytes, shortage.free_bytes, shortage.largest_free_bytes, shortage.fragmented
    )
