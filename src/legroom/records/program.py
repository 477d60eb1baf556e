"""A Program: which buffers a compiled step holds, from when to when. What every engine answers with."""

from dataclasses import dataclass
from typing import Literal

Category = Literal["weights", "optimizer", "gradients", "activations", "inputs", "workspace", "other"]
CATEGORIES: tuple[Category, ...] = ("weights", "optimizer", "gradients", "activations", "inputs", "workspace", "other")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of the schedule: what runs at that moment, and for which layer. A library call's opcode is its target's name."""

    name: str
    opcode: str
    op_name: str = ""
    flops: int = 0
    moved_bytes: int = 0
    launches: int = 0  # how often something is started for it in a step


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes [offset, offset + size) of one allocation, held from the moment `birth` to the moment `death`, both included."""

    name: str
    allocation: int
    offset_bytes: int
    size_bytes: int
    birth: int
    death: int
    category: Category
    layer: str = ""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A piece of device memory that the program holds for the whole step: a parameter, a constant, an output, the temporaries."""

    index: int
    size_bytes: int
    kind: Literal["parameter", "constant", "output", "temporary"]
    parameter: int | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A library's call that XLA times before the first step: with copies of what goes in, its result twice, and what its hungriest algorithm wants."""

    input_bytes: tuple[int, ...]
    output_bytes: int
    scratch_bytes: int


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled step. `total_bytes` is the compiler's own sum of its allocations: arguments + temporaries + outputs − aliases.

    `tuned_bytes` is the largest array of a convolution for which algorithms are tried that want many times as much.
    """

    schedule: tuple[Instruction, ...]
    allocations: tuple[Allocation, ...]
    buffers: tuple[Buffer, ...]
    total_bytes: int
    tuned_bytes: int = 0
    trials: tuple[Trial, ...] = ()

    @property
    def flops(self) -> int:
        return sum(instruction.flops for instruction in self.schedule)

    @property
    def moved_bytes(self) -> int:
        return sum(instruction.moved_bytes for instruction in self.schedule)

    @property
    def launches(self) -> int:
        return sum(instruction.launches for instruction in self.schedule)
