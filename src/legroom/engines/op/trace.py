"""An eager training step as plain data: operations in order, and when each tensor was let go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from legroom.engines.op.ops import Array, Op

Role = Literal["variable", "constant", "batch"]


@dataclass(frozen=True, slots=True)
class Ran:
    """An operation ran. A variable's number among the inputs of an assignment is the one that it writes."""

    op: Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    line: str | None = None  # "file:line" of the user's code, if it is in the stack


@dataclass(frozen=True, slots=True)
class Dropped:
    """Nobody holds this tensor any more: neither Python nor a tape."""

    tensor: int


Event = Ran | Dropped


@dataclass(frozen=True, slots=True)
class Resident:
    """A tensor that was there before the step, or a variable that the step created."""

    array: Array
    role: Role
    name: str | None = None


@dataclass(frozen=True, slots=True)
class EagerTrace:
    """What a step did. Tensors are numbered, and a number is never used again.

    A variable that the step creates appears as a `Ran` of kind "VarHandleOp" whose output is the variable; all other
    `residents` are there from the start. `returned` are the tensors still held when the step came back, `kept` those
    still held after its result was let go: the latter pile up from step to step.
    """

    events: tuple[Event, ...]
    residents: Mapping[int, Resident]
    returned: tuple[int, ...]
    kept: tuple[int, ...]
    notes: tuple[str, ...]
