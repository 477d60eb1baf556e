"""An allocator's dump, put together from its lines while the log is read."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from legroom.records.diagnosis import Fact, Pool

KINDS_KEPT = 4096
CLOSE = 0.006


@dataclass(slots=True)
class PoolBuilder:
    """What the lines of one dump have said so far. The exact sizes of its chunks are taken before rounded totals."""

    held: Counter[int] = field(default_factory=Counter)
    summed: Counter[int] = field(default_factory=Counter)
    holes: list[int] = field(default_factory=list)
    rough_holes: list[int] = field(default_factory=list)
    regions: list[int] = field(default_factory=list)
    said: dict[str, Fact] = field(default_factory=dict)

    def add(self, fact: Fact) -> None:
        value: Any = fact.value
        if fact.name == "chunk" and (value in self.held or len(self.held) < KINDS_KEPT):
            self.held[value] += 1
        elif fact.name == "chunks" and len(self.summed) < KINDS_KEPT:
            self.summed[value[0]] += value[1]
        elif fact.name == "hole" and len(self.holes) < 100_000:
            self.holes.append(value)
        elif fact.name == "rough_hole" and len(self.rough_holes) < KINDS_KEPT:
            self.rough_holes.append(value)
        elif fact.name == "region" and len(self.regions) < KINDS_KEPT:
            self.regions.append(value)
        elif fact.name.startswith("stat_") or fact.name in ("in_use_total", "reserved", "driver_free", "bin_for"):
            known = self.said.get(fact.name)
            if known is None or (fact.name == "stat_Limit" and is_rounded(known) and not is_rounded(fact)):
                self.said[fact.name] = fact

    def value(self, name: str) -> int | None:
        fact = self.said.get(name)
        return None if fact is None else fact.value

    @property
    def is_closed(self) -> bool:
        """Whether its statistics have been read: what comes next belongs to another dump."""
        return "stat_MaxAllocSize" in self.said or "stat_NumAllocs" in self.said

    @property
    def is_empty(self) -> bool:
        return not (self.held or self.summed or self.said or self.holes or self.regions)

    @property
    def is_listed(self) -> bool:
        """Whether chunks or regions were listed: nobody but the allocator prints those, and only when it has failed."""
        return bool(self.held or self.summed or self.holes or self.rough_holes or self.regions)

    def build(self) -> Pool:
        said = {name: fact.value for name, fact in self.said.items()}
        held = self.held if sum(self.held.values()) >= sum(self.summed.values()) else self.summed
        listed = sum(size * count for size, count in held.items())
        reserved = exactly(sum(self.regions), self.said.get("reserved"))
        in_use = exactly(listed, self.said.get("stat_InUse") or self.said.get("in_use_total"))
        if reserved is None and in_use == sum(size * count for size, count in self.held.items()):
            reserved = in_use + sum(self.holes)  # TensorFlow 1 lists no regions, but all that is in them
        limit = exactly(reserved or 0, self.said.get("stat_Limit"))
        holes = self.holes or self.rough_holes
        if not holes and said.get("stat_LargestFreeBlock"):
            holes = [said["stat_LargestFreeBlock"]]
        return Pool(
            limit, in_use, reserved, tuple(sorted(held.items(), reverse=True)), tuple(sorted(holes, reverse=True))
        )


def exactly(listed: int, total: Fact | None) -> int | None:
    """A total as the dump says it; where it says `3.61GiB`, the sum of what it lists, if that is the same. A list alone may be cut."""
    if total is None:
        return None
    rounded: int = total.value
    is_close = abs(listed - rounded) <= max(64, CLOSE * max(listed, rounded))
    return listed if is_rounded(total) and is_close else rounded


def is_rounded(fact: Fact) -> bool:
    """`4.00GiB` is; TensorFlow before 2.5 or so writes all its bytes."""
    return "iB" in fact.text
