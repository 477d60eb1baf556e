"""In which order TensorFlow makes a model's variables, and which of them begin as one tensor."""

from collections.abc import Sequence
from typing import NamedTuple

from legroom.records.step import Role

RANDOM_DRAFTS = 2  # tensors that a random initial value passes through before it is the variable: drawn, and scaled
RANKS: dict[Role, int] = {"optimizer": 1, "metric": 2}


class Kind(NamedTuple):
    """A variable, as far as its making goes; `place` is its place among the step's parameters."""

    role: Role
    shape: tuple[int, ...]
    dtype: str
    place: int


def creation(variables: Sequence[Kind], *, makes_slots: bool) -> list[tuple[tuple[int, ...], int]]:
    """The variables in the order in which they were made, by number, those that begin as one tensor together; and how many drafts each has: a
    random weight is made in three passes, each a new tensor.

    Slots that are made when the step is traced are filled by one graph, in which all zeros of one shape are one tensor: each
    gets memory of its own when it is first written to, among what the first step holds then.
    """
    order = sorted(range(len(variables)), key=lambda i: (RANKS.get(variables[i].role, 0), variables[i].place))
    groups: dict[object, list[int]] = {}
    for i in order:
        role, shape, dtype, _ = variables[i]
        groups.setdefault((shape, dtype) if makes_slots and role == "optimizer" else i, []).append(i)
    return [(tuple(group), drafts(variables[group[0]])) for group in groups.values()]


def drafts(variable: Kind) -> int:
    return RANDOM_DRAFTS if variable.role == "weight" and len(variable.shape) > 1 else 0
