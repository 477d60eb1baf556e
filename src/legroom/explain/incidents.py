"""One time that memory ran out, with everything that the log says of it."""

from dataclasses import dataclass, field
from typing import Any

from legroom.explain.pools import PoolBuilder
from legroom.explain.sizes import tensor_bytes
from legroom.records.diagnosis import Fact

LISTS = frozenset(("buffer_op", "xla_allocation", "dataset", "argument"))
KEPT_EACH = 400
ALIGNMENT = 256
ROUNDING = 0.01
HOST_KINDS = frozenset(("numpy", "bad_alloc", "host", "killed", "host_said"))
SAID = frozenset(("device_said", "host_said"))  # in words that no reader knows: they count where there is nothing else


@dataclass(slots=True)
class Incident:
    """Memory ran out once. `said` holds the first fact of each name, `lists` all of the few that come in tables."""

    kind: str
    opened: Fact
    epoch: int | None = None
    step: int | None = None
    epochs_ended: int = 0
    said: dict[str, Fact] = field(default_factory=dict)
    lists: dict[str, list[Fact]] = field(default_factory=dict)
    pool: PoolBuilder = field(default_factory=PoolBuilder)
    kinds: set[str] = field(default_factory=set)
    frames: list[str] = field(default_factory=list)
    place: str | None = None
    last_line: int = 0

    def value(self, name: str) -> Any:
        fact = self.said.get(name)
        return None if fact is None else fact.value

    def add(self, fact: Fact) -> None:
        self.last_line = max(self.last_line, fact.line)
        self.said.setdefault(fact.name, fact)
        if fact.name in LISTS:
            listed = self.lists.setdefault(fact.name, [])
            if len(listed) < KEPT_EACH:
                listed.append(fact)

    @property
    def shape(self) -> tuple[int, ...] | None:
        found: tuple[int, ...] | None = self.value("shape")
        return found

    @property
    def failed_bytes(self) -> int | None:
        """What was asked for: as the text says it, else what the tensor takes; that too where the text only says `17.9 GiB`."""
        said: int | None = self.value("failed_bytes") or self.value("tried_bytes") or self.pool.value("bin_for")
        tensor = tensor_bytes(self.shape, self.value("dtype") or self.value("node_dtype"))
        if said is None or tensor is None:
            return tensor if said is None else said
        return tensor if ALIGNMENT <= abs(said - tensor) <= ROUNDING * said else said

    def given(self) -> tuple[tuple[int, ...] | None, str | None]:
        """The shape and type of what the layer was given, where that is as large as what was asked for: mostly a copy of it, or its result."""
        asked = self.failed_bytes or 0
        for fact in self.lists.get("argument", []):
            size = tensor_bytes(*fact.value)
            if self.shape is None and size and abs(size - asked) <= ROUNDING * asked:
                shape, dtype = fact.value
                return shape, dtype
        return self.shape, None

    @property
    def is_whole_step(self) -> bool:
        """Whether a compiled step asked: once, for all that it needs."""
        return {"pool", "xla"} <= self.kinds

    @property
    def is_on_host(self) -> bool:
        return self.kind in HOST_KINDS
