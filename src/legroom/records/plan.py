"""A Plan: what would be changed about a training so that it fits, what that costs, and whether what is learned stays the same."""

from dataclasses import dataclass
from typing import Any, Literal

Exactness = Literal["exact", "equivalent", "inexact"]
EXACTNESS: tuple[Exactness, ...] = ("exact", "equivalent", "inexact")


@dataclass(frozen=True, slots=True)
class Action:
    """One change, e.g. `Action("microbatch", (("count", 4),))`. Its settings are plain data."""

    name: str
    settings: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, key: str) -> Any:
        return dict(self.settings)[key]


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions with the peak that was estimated for all of them together. `slowdown` is 1.0 for the step as it is, None where it is not known.

    *exact*: the weights come out the same up to the order of additions; *equivalent*: the same in distribution; `reasons` say
    why it is not exact.
    """

    actions: tuple[Action, ...]
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    fits: bool
    slowdown: float | None
    exactness: Exactness = "exact"
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planning:
    """The answer of `legroom plan`: the plans worth having, best first, the step as it is last if it does not fit.

    `chosen` is the place of the one to take, None where none fits; `refused` says what was not possible, and why.
    """

    gpu: str
    batch: int | None
    usable_bytes: int
    unchanged: Plan
    plans: tuple[Plan, ...]
    chosen: int | None
    max_batch: int | None = None
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def best(self) -> Plan | None:
        return None if self.chosen is None else self.plans[self.chosen]


def worst(kinds: "list[Exactness] | tuple[Exactness, ...]") -> Exactness:
    """Of several actions the least exact decides."""
    return max(kinds, key=EXACTNESS.index, default="exact")


def action_to_json(action: Action) -> dict[str, Any]:
    return {"name": action.name, **dict(action.settings)}


def action_from_json(value: dict[str, Any]) -> Action:
    settings = {key: frozen(item) for key, item in value.items() if key != "name"}
    return Action(str(value["name"]), tuple(settings.items()))


def frozen(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value
