"""What was found in a process that grows, as data: the two censuses are taken apart in time, and compared here."""

from dataclasses import dataclass, field
from typing import Literal

CauseKind = Literal[
    "retracing",  # a compiled function is traced again and again
    "collected",  # a container keeps tensors, arrays or other objects
    "rebuilt",  # models or layers are built again and again
    "predict",  # `predict` is called in a loop
    "filling",  # a cache or a buffer of known purpose fills up: no leak
    "unknown",
]
Element = Literal["tensors", "arrays", "models", "objects"]


@dataclass(frozen=True, slots=True)
class Traced:
    """A compiled function: how often it was traced, and what differed between the traces, by argument."""

    name: str
    traces: int
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Container:
    """A list, dict, set or deque that grew: what it holds, what one element weighs, and where it is to be found."""

    kind: str
    name: str
    size: int
    grown: int
    element: Element
    element_bytes: int
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Cache:
    """A tf.data cache in RAM: elements in all (None: unknown), elements of a step, bytes of an element where they are known."""

    elements: int | None
    per_step: int
    element_bytes: int | None


@dataclass(frozen=True, slots=True)
class Census:
    """One look at everything that lives.

    `plug` is the empty list in which it was counted: given back, its megabytes would feed the leak for a while, unseen.
    """

    step: int
    functions: dict[int, Traced] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    built: dict[str, int] = field(default_factory=dict)
    caches: tuple[Cache, ...] = ()
    plug: list[None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What changed within so many steps."""

    steps: int
    at_step: int
    retraced: tuple[Traced, ...] = ()  # `traces` are those since the first census
    anew: tuple[Traced, ...] = ()  # functions that did not exist then, as many as `traces`
    containers: tuple[Container, ...] = ()
    built: tuple[tuple[str, int], ...] = ()
    predicts: int = 0
    caches: tuple[Cache, ...] = ()
    kinds: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Cause:
    """Why memory grows, in one word and in one sentence, and what to do."""

    kind: CauseKind
    text: str
    advice: str = ""
    left_bytes: int | None = None
