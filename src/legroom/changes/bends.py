"""Numbers of the whole batch that go through what bends: they are made to come out on its other side.

A loss may be linear in its mean today and not tomorrow: `tf.maximum(kl, 0.1)`, `tf.abs(mean - b) + b`, `tf.where(mean > b, ...)`. What has no row for each
sample is made to come out on one side for the whole batch and on the other for one of its slices. What is a mean or a sum on either side of the bend, and
what does not reach the loss at all, stays as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from legroom.changes.forced import Shape
from legroom.changes.made_up import CUTS, ROWS

PLACES = ((0, ROWS), *CUTS)
MOST = 8  # bends that are tried one by one, where user code does not run with all of them at once
KINDS = {  # by the names that TensorFlow and JAX have for operations, what is done in a gradient among them
    **dict.fromkeys(("Maximum", "Minimum", "max", "min"), "either"),
    **dict.fromkeys(("Abs", "abs"), "absolute"),
    **dict.fromkeys(("Relu", "Relu6", "Elu", "Selu", "LeakyRelu"), "rectified"),
    **dict.fromkeys(("ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "LeakyReluGrad"), "rectified"),
    "ClipByValue": "clipped",
    "clamp": "clamped",
    **dict.fromkeys(("Sign", "sign"), "sign"),
    **dict.fromkeys(("Floor", "Ceil", "Round", "Rint", "floor", "ceil", "round"), "step"),
    **dict.fromkeys(("Max", "Min", "reduce_max", "reduce_min"), "extreme"),
}
CHECKS = frozenset(("IsFinite", "IsNan", "IsInf", "is_finite"))
Bend = tuple[str, Shape]  # the operation, and the shape of what bends there


@dataclass
class Bends:
    """Those of one trial, in the order in which they are met; `which` of them are made to come out on a side."""

    pattern: int = 0
    rows: tuple[int, int] = PLACES[0]
    which: dict[int, Bend] = field(default_factory=dict)
    met: list[Bend] = field(default_factory=list)

    def meet(self, op: str, values: Sequence[Any], output: Any, axes: Any = None) -> Any:
        """What comes out instead, as an array of NumPy's; None where it is left alone."""
        kind = kind_of(op, values, output)
        if kind is None:
            return None
        number, bend = len(self.met), (op, tuple((values[0] if kind == "extreme" else output).shape))
        self.met.append(bend)
        if self.which.get(number) != bend:
            return None
        return bent(kind, values, output, self.sides(number, tuple(output.shape)), axes)

    def sides(self, number: int, shape: Shape) -> Any:
        """One and the same for the batch and its first slice, the other one for the others; in odd patterns every second number on the other side, in the second
        two all of them."""
        import numpy as np

        turned = bool(self.pattern // 2 % 2) != bool(self.pattern % 2 and number % 2)
        first = (self.rows[0] == 0) != turned
        return (np.arange(int(np.prod(shape, dtype=int))) % 2 == 0).reshape(shape) == first


def kind_of(op: str, values: Sequence[Any], output: Any) -> str | None:
    """How it bends; None for what does not, and for the conjunctions of truths."""
    if op in CHECKS or not len(values):
        return None
    if is_truth(output):
        return None if is_truth(values[0]) else "truth"
    return KINDS.get(op) if "float" in str(output.dtype) else None


def is_truth(tensor: Any) -> bool:
    return "bool" in str(tensor.dtype)


def bent(kind: str, values: Sequence[Any], output: Any, sides: Any, axes: Any = None) -> Any:
    import numpy as np

    if kind == "truth":
        return sides
    shape = tuple(output.shape)
    one, *others = map(np.asarray, values)
    if kind == "extreme":
        along = tuple(np.ravel(others[0] if axes is None else axes).tolist())
        pair = one.max(axis=along).reshape(shape), one.min(axis=along).reshape(shape)
    else:
        pair = {
            "either": lambda: (one, others[0]),
            "absolute": lambda: (one, -one),
            "rectified": lambda: (one, np.zeros_like(one)),
            "clipped": lambda: (one, others[0]),
            "clamped": lambda: (others[0], one),
            "sign": lambda: (np.ones_like(one), -np.ones_like(one)),
            "step": lambda: (np.asarray(output), np.asarray(output) + 1),
        }[kind]()
    return np.where(sides, *pair).astype(np.asarray(output).dtype)


def of_the_batch(met: Sequence[Sequence[Bend]]) -> dict[int, Bend]:
    """Which of those met in the batch and in its slices have no row for each sample: they are of the same shape, however many there are."""
    if len({len(bends) for bends in met}) > 1:
        return {}
    return {number: bends[0] for number, bends in enumerate(zip(*met, strict=True)) if len(set(bends)) == 1}


def names_of(which: dict[int, Bend]) -> str:
    """Of the first of them, for people."""
    return ", ".join(list(dict.fromkeys(op for op, _ in which.values()))[:3])
