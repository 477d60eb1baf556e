"""What trials of a training step have found out together, and what one of them did."""

from dataclasses import dataclass, field
from typing import Any

from legroom.changes.custom_later import Scalars
from legroom.changes.lookups import Entries


@dataclass
class Known:
    """What all trials of a step have found out together."""

    draws: dict[int, Any] = field(default_factory=dict)
    before: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # trained variables, and their values
    reasons: dict[str, None] = field(default_factory=dict)
    inlined: list[Any] = field(default_factory=list)
    counts: dict[int, Any] = field(default_factory=dict)  # variables of metrics
    added: dict[int, bool] = field(
        default_factory=dict
    )  # whether a metric adds to what it holds, in the order of `Seen.counted`
    scalars: Scalars = field(default_factory=Scalars)
    unbuilt: dict[int, tuple[Any, list[Any]]] = field(
        default_factory=dict
    )  # optimizers that were applied, to which variables
    built: bool = False  # what is made at a step's first call gets its own random numbers
    random: bool = False
    half: bool = False


@dataclass
class Seen:
    """What one trial did: gradients and updates as digests, numbers and outputs as arrays."""

    gradients: list[list[Any]] = field(default_factory=list)
    scalars: list[Any] = field(default_factory=list)  # two for each number: its weight's too, or None
    counted: list[tuple[str, Any, Any]] = field(default_factory=list)  # what metrics held, and what it became
    adding: list[bool] = field(default_factory=list)  # whether that metric is one of Keras' sums and means
    outputs: list[Any] = field(default_factory=list)
    of_slice: dict[str, list[bool | None]] = field(default_factory=lambda: {"scalars": [], "outputs": []})
    applied: list[list[Any]] = field(default_factory=list)
    assigned: list[tuple[str, list[Any]]] = field(default_factory=list)
    names: list[list[str]] = field(default_factory=list)  # of the variables that gradients are taken of
    entries: list[Entries] = field(default_factory=list)  # of each gradient in each call
    sizes: list[int] = field(default_factory=list)  # first dimensions of what was drawn at random
    truths: list[bool] = field(default_factory=list)  # that no sample, gradient or random number decides
    repeated: list[tuple[int, ...]] = field(default_factory=list)  # shapes of what is drawn again in every slice

    def outline(self) -> Any:
        """What a batch and its slices have in common."""
        gradients = [[entry is None for entry in entries] for entries in self.gradients]
        return gradients, len(self.scalars), len(self.outputs)

    def updates(self) -> tuple[int, int]:
        """How often it updates something: so does the last slice, the ones before it may find other gradients and not."""
        return len(self.applied), len(self.assigned)

    def same(self, other: "Seen") -> bool:
        """Whether it is as if the one were the other."""
        import tensorflow as tf

        def numbers(seen: Seen) -> list[Any]:
            each = (seen.gradients, seen.scalars, seen.outputs, seen.applied)
            return [exactly(leaf) for leaf in tf.nest.flatten(each)]

        return numbers(self) == numbers(other)

    def finite(self) -> bool:
        return all_finite(self.gradients)

    def tells(self) -> bool:
        """Whether its updates are numbers, too: the norm of large gradients may not be one, and what they are clipped by it."""
        return self.finite() and all_finite(self.applied)


def all_finite(calls: list[list[Any]]) -> bool:
    import numpy as np

    return all(bool(np.all(np.isfinite(entry))) for entries in calls for entry in entries if entry is not None)


def exactly(leaf: Any) -> Any:
    """What can be compared with `==`; all that is no array is as good as nothing."""
    import numpy as np

    return (leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) and leaf.dtype.kind != "O" else None
