"""A Plan: what would be changed about a training so that it fits, what that costs, and whether what is learned stays the same."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from legroom.errors import InputError
from legroom.records.host import HostPlan
from legroom.records.portrait import Portrait

Exactness = Literal["exact", "equivalent", "inexact"]
EXACTNESS: tuple[Exactness, ...] = ("exact", "equivalent", "inexact")


@dataclass(frozen=True, slots=True)
class Action:
    """One change, e.g. `Action("microbatch", (("count", 4),))`. Its settings are plain data."""

    name: str
    settings: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, key: str) -> Any:
        known = dict(self.settings)
        if key not in known:
            raise InputError(
                f"The action {self.name!r} does not say its {key!r}.", "Make the plan again: legroom plan."
            )
        return known[key]


@dataclass(frozen=True, slots=True)
class Effect:
    """What actions do to what is learned.

    *exact*: the weights come out the same up to the order of additions; *equivalent*: the same in distribution; `reasons` say why it
    is not exact. `tried` are the user's own parts of which that is known from trials on samples alone, not from how they are made.
    """

    exactness: Exactness = "exact"
    reasons: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions with the peak that was estimated for all of them together. `slowdown` is 1.0 for the step as it is, None where it is not known.

    `exactness`, `reasons` and `tried` are its `Effect`. `made_for` is the model that it was made for, by which `legroom.apply` knows it.
    """

    actions: tuple[Action, ...]
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    fits: bool
    slowdown: float | None
    exactness: Exactness = "exact"
    reasons: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    made_for: Portrait | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Planning:
    """The answer of `legroom plan`: the plans worth having, best first, the step as it is last if it does not fit.

    `chosen` is the place of the one to take, None where none fits; `refused` says what was not possible, and why.
    `max_batch` is the largest batch that fits as it is, `max_batch_planned` the largest with the chosen plan's actions.
    `advice` is about the model itself, whose layers Legroom leaves as they are. `host` is about RAM, where that is known.
    """

    gpu: str
    batch: int | None
    usable_bytes: int
    unchanged: Plan
    plans: tuple[Plan, ...]
    chosen: int | None
    max_batch: int | None = None
    max_batch_planned: int | None = None
    advice: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    made_for: Portrait | None = field(default=None, repr=False)
    host: HostPlan | None = None

    @property
    def best(self) -> Plan | None:
        return None if self.chosen is None else self.plans[self.chosen]

    def for_model(self, portrait: Portrait | None) -> "Planning":
        """The same, with the model that all of it was made for."""
        plans = tuple(replace(plan, made_for=portrait) for plan in self.plans)
        return replace(self, unchanged=replace(self.unchanged, made_for=portrait), plans=plans, made_for=portrait)


def together(effects: Iterable[Effect]) -> Effect:
    """Of several actions the least exact decides."""
    found = tuple(effects)
    return Effect(
        max((one.exactness for one in found), key=EXACTNESS.index, default="exact"),
        tuple(dict.fromkeys(reason for one in found for reason in one.reasons)),
        tuple(dict.fromkeys(name for one in found for name in one.tried)),
    )


def action_to_json(action: Action) -> dict[str, Any]:
    return {"name": action.name, **dict(action.settings)}


def action_from_json(value: dict[str, Any]) -> Action:
    settings = {key: frozen(item) for key, item in value.items() if key != "name"}
    return Action(str(value["name"]), tuple(settings.items()))


def frozen(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value
