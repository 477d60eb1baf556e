"""One captured step for several who ask about it at the same time, each with actions of its own done to it.

The step is in one process and can be changed and traced by one at a time; what is traced is kept for a while, so that actions
that change nothing about the trace do not trace again.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from legroom.engines.host.observe import Observed
from legroom.engines.op.grappler import Device
from legroom.engines.op.lower import OpStep
from legroom.front.source import Capability, StepSource
from legroom.records import Lowered, Step
from legroom.records.alternative import Alternative
from legroom.records.plan import Action, Effect
from legroom.records.portrait import Portrait

MOST_KEPT = 3  # traces: each may be some ten megabytes
BESIDE_THE_TRACE = ("host_data", "xla_memory", "pool", "allocator")  # actions after which the same step is traced


class Shared:
    """The step, whose turn it is, and what was traced last."""

    def __init__(self, source: StepSource) -> None:
        self.source = source
        self.turn = threading.RLock()
        self.state: Any = ()  # the actions that are done to it, or the alternative that it stands for
        self.kept: OrderedDict[Any, Any] = OrderedDict()

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self.kept:
            self.kept[key] = make()
        self.kept.move_to_end(key)
        while len(self.kept) > MOST_KEPT:
            self.kept.popitem(last=False)
        return self.kept[key]


class View:
    """The step as one of them has it: a `StepSource`."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.state: Any = ()
        self.step: Step = shared.source.step

    @property
    def is_elsewhere(self) -> bool:
        return self.shared.source.is_elsewhere

    def beside(self) -> "View":
        """The step as it was captured, for somebody else."""
        other = View(self.shared)
        other.change(())
        return other

    @contextmanager
    def mine(self) -> Iterator[StepSource]:
        """The source, with this view's actions done to it, until the end of the block."""
        with self.shared.turn:
            if self.shared.state != self.state:
                imagined = isinstance(self.state, Alternative)
                self.shared.source.change(() if imagined else self.state)
                if imagined:
                    self.shared.source.imagine(self.state)
                self.shared.state = self.state
            yield self.shared.source

    def change(self, actions: Sequence[Action]) -> Effect:
        with self.shared.turn:
            self.shared.state = None  # whatever happens now
            found = self.shared.source.change(actions)
            self.state = self.shared.state = tuple(actions)
            self.step = self.shared.source.step
            return found

    def imagine(self, alternative: Alternative) -> None:
        with self.mine() as source:
            source.imagine(alternative)
            self.state = self.shared.state = alternative
            self.step = source.step

    def lower(self, batch: int | None, capability: Capability) -> Lowered:
        with self.mine() as source:
            key = ("lower", self.traced(), batch, capability)
            return self.shared.keep(key, lambda: source.lower(batch, capability))  # type: ignore[no-any-return]

    def work(self, batch: int | None, device: Device) -> OpStep:
        with self.mine() as source:
            key = ("work", self.traced(), batch, device)
            return self.shared.keep(key, lambda: source.work(batch, device))  # type: ignore[no-any-return]

    def traced(self) -> Any:
        """What decides how the step is traced."""
        if isinstance(self.state, Alternative):
            return self.state
        return tuple(action for action in self.state if action.name not in BESIDE_THE_TRACE)

    def fingerprint(self, batch: int | None) -> str | None:
        with self.mine() as source:
            return source.fingerprint(batch)

    def observe(self) -> Observed:
        with self.mine() as source:
            return source.observe()

    def possible(self) -> list[Action]:
        with self.mine() as source:
            return source.possible()

    def segments(self, batch: int | None) -> list[dict[str, Any]]:
        with self.mine() as source:
            return source.segments(batch)

    def portrait(self) -> Portrait | None:
        with self.mine() as source:
            return source.portrait()

    def alternatives(self, holders: Sequence[str]) -> list[Alternative]:
        with self.mine() as source:
            return source.alternatives(holders)
