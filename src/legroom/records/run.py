"""A Run: what the guard saw and did while a model trained, event by event."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

EventKind = Literal[
    "out_of_memory",  # a step failed and was taken back
    "does_not_fit",  # a compiled step that was not started
    "changed",  # the step is run another way from now on
    "larger",  # fewer micro-batches are tried again, as asked
    "gave_up",  # nothing is left to try
    "not_ours",  # memory ran out in a callback or in the data
    "not_guarded",  # why this training is not guarded
]
Where = Literal["gradients", "update", "training", "evaluation", "prediction", "callback", "data", ""]


@dataclass(frozen=True, slots=True)
class Way:
    """How a step is run: in how many micro-batches, and whether layers are recomputed."""

    micro_batches: int = 1
    recomputed: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `step` counts training steps of this run from one, `epoch` Keras' epochs from zero.

    Sizes are None where nobody said them. `way` is how the step was run when it happened, or from then on.
    """

    kind: EventKind
    where: Where = ""
    step: int = 0
    epoch: int = 0
    batch: int | None = None
    way: Way = Way()
    asked_bytes: int | None = None
    in_use_bytes: int | None = None
    free_bytes: int | None = None
    op: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """What happened so far. `careful_updates` is how often weights and slots were copied to the host for an update."""

    steps: int = 0
    way: Way = Way()
    careful_updates: int = 0
    events: tuple[Event, ...] = ()

    def of_kind(self, kind: EventKind) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event.kind == kind)


def event_to_json(event: Event) -> dict[str, Any]:
    return {"schema": 1, **asdict(event)}


def event_from_json(data: dict[str, Any]) -> Event:
    rest = {name: value for name, value in data.items() if name not in ("schema", "way")}
    return Event(**rest, way=Way(**data["way"]))
