"""What the host holds, as records: one holding, all of a stage's, and the machine that autotuning sees."""

from dataclasses import dataclass
from typing import Literal

from legroom.engines.host.span import NOTHING, Span, exactly
from legroom.engines.host.stages import Stage

Phase = Literal["own", "made", "kept", "start", "running"]

TENSOR_BYTES = 144  # a tensor's object, its buffer's object, and malloc's rounding; measured over 1,000,000 scalars
ELEMENT_BYTES = 48  # the vector that holds an element's tensors
FIRST_RUN_BYTES = Span(0, 17_000_000, 60_000_000)  # threads, arenas and graphs of a first pipeline
# What prefetch(AUTOTUNE) holds: 1 or 2 elements when steady, 16 for a consumer that stutters.
PREFETCH_AUTOTUNED = (0.0, 1.5, 16.0)


@dataclass(frozen=True, slots=True)
class Machine:
    """What autotuning sees: cores, and the most that it may spend; `limit_bytes` stands for "nobody knows how much"."""

    cores: int
    limit_bytes: int
    ram_budget_bytes: int


@dataclass(frozen=True, slots=True)
class Holding:
    """Something in RAM: the script's `own`, `made` with a dataset, `kept` from training's start on, at its `start` only, or
    while it is `running`; `lasting` if it outlives the iterator that filled it. `pooled` is what of it lies in the allocator
    of TensorFlow's CPU device, the batch in the step apart: all of it, unless it says otherwise. `before_fit`: though it goes when
    training starts, it is there when `fit` is called.
    """

    name: str
    bytes: Span
    why: str
    phase: Phase = "running"
    lasting: bool = False
    pooled: Span | None = None
    before_fit: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """What a stage and everything before it hold: lasting buffers, and the most that asking it once takes beside them."""

    buffers: tuple[Holding, ...] = ()
    work: Span = NOTHING
    notes: tuple[str, ...] = ()


def element_of(stage: Stage) -> Span:
    """One element in memory, with the objects around its tensors. Aligned slices of a source are views, and take no more."""
    objects = exactly(ELEMENT_BYTES + TENSOR_BYTES * stage.components)
    views = exactly(stage.aliased_bytes)
    return (stage.element.over(views) if stage.aliased_bytes else stage.element) + objects
