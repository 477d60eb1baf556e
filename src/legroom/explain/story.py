"""The facts of a log put together: each time that memory ran out, with what was said about it, and what was said besides."""

import re
from collections.abc import Iterable

from legroom.explain.incidents import KEPT_EACH, SAID, Incident
from legroom.explain.pools import PoolBuilder
from legroom.explain.sameness import is_about
from legroom.records.diagnosis import Fact

OF_A_POOL = """
chunk chunks hole rough_hole region in_use_total reserved driver_free bin_for
stat_Limit stat_InUse stat_MaxInUse stat_NumAllocs stat_MaxAllocSize stat_LargestFreeBlock
"""
OF_AN_INCIDENT = """
failed_bytes allocator op node kind shape dtype device device_hint layer limit_bytes in_use_bytes free_bytes
too_large taken named node_dtype torch_reserved torch_idle torch_own torch_others no_algorithm autotune tried_bytes updates makes state_kernel on_chip dataset raised cgroup xla_allocation
buffer_op argument largest_free called
"""
SAYS_MORE = (  # than words that no reader knows
    *(
        "refused",
        "driver_out",
        "no_context",
        "refused_on_host",
        "cudnn",
        "cudnn_workspace",
        "harmless",
        "regions_collected",
    ),
    *("rematerialized", "retraced", "growing", "not_memory", "autotune"),
)
POOL_FACTS = frozenset(OF_A_POOL.split())
ABOUT_OOM = frozenset(OF_AN_INCIDENT.split())
KEPT_INCIDENTS = 500
NEAR_LINES = 4000
CLOSE_LINES = 30
TITLE_LINES = 3
THREAD = re.compile(r"^\W{0,8}[IWEF]\d{4} [\d:.]{8,32}\s{1,8}(\d{1,10}) ")


class Story:
    """Reads facts in the order of the log. `facts` keeps the first few of each name, `incidents` each lack of memory."""

    def __init__(self) -> None:
        self.facts: dict[str, list[Fact]] = {}
        self.counts: dict[str, int] = {}
        self.incidents: list[Incident] = []
        self._threads: dict[str, Incident] = {}
        self._orphan = PoolBuilder()
        self._orphan_first: Fact | None = None
        self._epoch: int | None = None
        self._step: int | None = None
        self._epochs_ended = 0
        self._frames: list[str] = []
        self._place: str | None = None
        self._raised: Fact | None = None
        self._layer: Fact | None = None
        self._node: Fact | None = None
        self._called: Fact | None = None
        self._counted: Fact | None = None
        self._passed: Fact | None = None
        self._works: Fact | None = None

    def read(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self._take(fact)
        self._close()

    def all(self, name: str) -> list[Fact]:
        return self.facts.get(name, [])

    def has(self, *names: str) -> bool:
        return any(name in self.facts for name in names)

    def main(self) -> Incident | None:
        """The one to explain: the last that a traceback ends in, else the last that XLA says of itself (before it tries a program's
        convolutions run out of memory, which is no error), else the first."""
        if all(incident.kind in SAID for incident in self.incidents) and self.has(*SAYS_MORE):
            return None
        raised = [incident for incident in self.incidents if "raised" in incident.said and "traceback" in incident.said]
        compiled = [incident for incident in self.incidents if incident.is_whole_step]
        return next(iter(raised[-1:] + compiled[-1:] + self.incidents[:1]), None)

    def _take(self, fact: Fact) -> None:
        self._keep(fact)
        if fact.name == "oom":
            self._open(fact)
        elif fact.name in POOL_FACTS:
            self._dumped(fact)
        elif fact.name == "dump":
            self._dump(fact)
        elif fact.name in ABOUT_OOM:
            self._about(fact)
        else:
            self._besides(fact)

    def _keep(self, fact: Fact) -> None:
        if fact.name in POOL_FACTS:
            return
        self.counts[fact.name] = self.counts.get(fact.name, 0) + 1
        kept = self.facts.setdefault(fact.name, [])
        if len(kept) < KEPT_EACH:
            kept.append(fact)

    def _besides(self, fact: Fact) -> None:
        if fact.name == "epoch":
            self._epoch, self._step, self._works = max(self._epoch or 0, fact.value), None, None
        elif fact.name == "step":
            self._step = fact.value
        elif fact.name == "epochs_ended":
            self._epochs_ended, self._step, self._works = fact.value, None, None
        elif fact.name == "traceback":
            self._frames, self._place = ["traceback"], None
        elif fact.name == "frame":
            self._frames = [*self._frames[-80:], fact.value]
        elif fact.name == "place":
            self._place = fact.value
        elif fact.name == "works":
            self._works = what_works(self._works, fact)
        elif fact.name == "counted":
            self._works = fact_of_work(fact) if is_next(self._counted, fact) else self._works
            self._counted = fact

    def _open(self, fact: Fact) -> None:
        """A new incident, or another word on one that is known: TensorFlow says the same thing up to five times."""
        if fact.value in SAID and self.incidents:
            self._passed = fact
            return
        if fact.value not in SAID:
            self.incidents = [incident for incident in self.incidents if incident.kind not in SAID]
        if fact.value == "pool":  # a dump comes before its traceback: what was read so far was another's
            self._frames, self._place, self._raised = [], None, None
        known = self._same(fact)
        if known is None:
            known = Incident(fact.value, fact, self._epoch, self._step, self._epochs_ended)
            if not self._orphan.is_empty and not self.incidents:
                known.pool = self._orphan
            if self._works is not None and fact.line - self._works.line <= soon(fact):
                known.said["works"] = self._works
            if len(self.incidents) < KEPT_INCIDENTS:
                self.incidents.append(known)
        elif known.kind in ("copy", "autotune") and fact.value in ("pool", "tensor"):
            known.kind = fact.value
        known.kinds.add(fact.value)
        known.last_line = fact.line
        if self._frames:
            known.frames = known.frames or list(self._frames)
            known.place = known.place or self._place
            known.said.setdefault("traceback", fact)
        if self._raised is not None:
            known.said.setdefault("raised", self._raised)
        for before, close in (
            (self._layer, CLOSE_LINES),
            (self._called, CLOSE_LINES),
            (self._node, 2),
        ):  # all are said before the message
            if before is not None and fact.line - before.line <= close:
                known.said.setdefault(before.name, before)
        self._threads[thread_of(fact)] = known
        self._threads["latest"] = known

    def _same(self, fact: Fact) -> Incident | None:
        """The incident that this line is about, if it is an old one: of equal ones, a traceback ends in the first."""
        recent = self.incidents[-8:]
        if recent and recent[-1].opened.line == fact.line and recent[-1].opened.text == fact.text:
            return recent[-1]
        for incident in recent if self._frames else reversed(recent):
            if is_about(incident, fact):
                return incident
        return None

    def _about(self, fact: Fact) -> None:
        incident = self._threads.get("latest")
        if fact.name == "layer":
            self._layer = fact
        elif fact.name == "called":
            self._called = fact
        elif fact.name == "node" and "Node: '" in fact.text:
            self._node = fact
        if incident is None or fact.line > incident.last_line + NEAR_LINES or self._is_passed(fact):
            return
        if fact.name == "raised" and fact.line != incident.last_line:
            self._raised = fact
        else:
            incident.add(fact)

    def _is_passed(self, fact: Fact) -> bool:
        """Whether it stands in a line that was passed over, as more is known."""
        passed = self._passed
        return passed is not None and passed.line == fact.line and passed.text == fact.text

    def _dump(self, fact: Fact) -> None:
        incident = self._threads.get(thread_of(fact)) or self._threads.get("latest")
        if incident is not None and "allocator" not in incident.said:
            incident.add(Fact("allocator", fact.value, fact.line, fact.text))
        elif incident is None:
            self._keep(Fact("allocator", fact.value, fact.line, fact.text))

    def _dumped(self, fact: Fact) -> None:
        incident = self._threads.get(thread_of(fact)) or self._threads.get("latest")
        if incident is None:
            self._orphan.add(fact)
            self._orphan_first = self._orphan_first or fact
        elif not (incident.pool.is_closed and not fact.name.startswith("stat_")):
            incident.pool.add(fact)
            incident.last_line = fact.line

    def _close(self) -> None:
        """What a cut log leaves open: an exception without its message, a dump without its request."""
        if self._raised is not None and self.incidents:
            self._threads["latest"].said.setdefault("raised", self._raised)
        totals = [fact for name, fact in self._orphan.said.items() if name in ("stat_InUse", "in_use_total", "bin_for")]
        first = next(iter(totals), self._orphan_first if self._orphan.is_listed else None)
        if first is not None and all(incident.kind in SAID for incident in self.incidents):
            incident = Incident("pool", first, self._epoch, self._step, pool=self._orphan, last_line=first.line)
            for fact in self.all("allocator")[:1]:
                incident.add(fact)
            self.incidents = [incident]


def what_works(before: Fact | None, fact: Fact) -> Fact | None:
    """What the run is at: a bar without a title goes on with what the line above it says; work on a model ends work on data."""
    if fact.value == "bar":
        is_titled = before is not None and fact.line - before.line <= TITLE_LINES
        return fact_of_work(fact) if is_titled else None
    return None if fact.value == "model" else fact


def is_next(before: Fact | None, fact: Fact) -> bool:
    """Whether a line counts on where another one has stopped."""
    if before is None or fact.line - before.line > CLOSE_LINES:
        return False
    return bool(before.value[0] == fact.value[0] and before.value[1] < fact.value[1])


def fact_of_work(fact: Fact) -> Fact:
    return Fact("works", "data", fact.line, fact.text)


def soon(fact: Fact) -> int:
    """How many lines may lie between what a run says it does and its end; before an exception there is its traceback."""
    return TITLE_LINES if fact.value == "killed" else CLOSE_LINES


def thread_of(fact: Fact) -> str:
    found = THREAD.match(fact.text)
    return found[1] if found else "latest"
