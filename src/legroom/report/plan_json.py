"""A Planning as JSON, and back. What is read may have been written by another Legroom, or by hand: it is checked."""

from dataclasses import asdict
from typing import Any

from legroom.records.host import HostAction, HostPlan
from legroom.records.plan import EXACTNESS, Action, Plan, Planning, action_from_json, action_to_json
from legroom.records.portrait import Portrait, portrait_from_json, portrait_to_json
from legroom.report.view import SCHEMA

KINDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class NotAPlan(ValueError):
    """Why some JSON is no plan."""


def planning_view(planning: Planning) -> dict[str, Any]:
    """The whole answer as plain data; `planning_from` reads it."""
    return {
        "schema": SCHEMA,
        "gpu": planning.gpu,
        "batch": planning.batch,
        "usable_bytes": planning.usable_bytes,
        "unchanged": plan_view(planning.unchanged),
        "plans": [plan_view(plan) for plan in planning.plans],
        "chosen": planning.chosen,
        "max_batch": planning.max_batch,
        "max_batch_planned": planning.max_batch_planned,
        "advice": list(planning.advice),
        "refused": list(planning.refused),
        "notes": list(planning.notes),
        "host": None if planning.host is None else asdict(planning.host),
        "seconds": round(planning.seconds, 3),
        "made_for": None if planning.made_for is None else portrait_to_json(planning.made_for),
    }


def plan_view(plan: Plan) -> dict[str, Any]:
    return {
        "actions": [action_to_json(action) for action in plan.actions],
        "peak_bytes": plan.peak_bytes,
        "low_bytes": plan.low_bytes,
        "high_bytes": plan.high_bytes,
        "fits": plan.fits,
        "slowdown": plan.slowdown,
        "exact": plan.exactness == "exact",
        "exactness": plan.exactness,
        "reasons": list(plan.reasons),
        "tried": list(plan.tried),
    }


def planning_from(view: Any) -> Planning:
    """The answer from its JSON; NotAPlan says what is wrong with it."""
    require_schema(view)
    plans = tuple(plan_from(plan) for plan in take(view, "plans", list))
    found = Planning(
        gpu=take(view, "gpu", str),
        batch=take(view, "batch", int, optional=True),
        usable_bytes=take(view, "usable_bytes", int),
        unchanged=plan_from(take(view, "unchanged", dict)),
        plans=plans,
        chosen=take(view, "chosen", int, optional=True),
        max_batch=take(view, "max_batch", int, optional=True),
        max_batch_planned=take(view, "max_batch_planned", int, optional=True),
        advice=tuple(take(view, "advice", list)),
        refused=tuple(take(view, "refused", list)),
        notes=tuple(take(view, "notes", list)),
        seconds=take(view, "seconds", float),
        host=host_from(view.get("host")),
    )
    if found.chosen is not None and not 0 <= found.chosen < len(plans):
        raise NotAPlan(f"it chooses plan {found.chosen}, and has {len(plans)}")
    return found.for_model(portrait_from(take(view, "made_for", dict, optional=True)))


def require_schema(view: Any) -> None:
    if not isinstance(view, dict):
        raise NotAPlan("it is no JSON object")
    schema = take(view, "schema", int)
    if schema != SCHEMA:
        age = "a newer" if schema > SCHEMA else "an older"
        raise NotAPlan(f"{age} Legroom has written it (schema {schema}; this one reads {SCHEMA})")


def plan_from(view: Any) -> Plan:
    exactness = take(view, "exactness", str)
    if exactness not in EXACTNESS:
        raise NotAPlan(f"'exactness' is {exactness!r}, which is none of {', '.join(EXACTNESS)}")
    return Plan(
        actions=tuple(action_from(action) for action in take(view, "actions", list)),
        peak_bytes=take(view, "peak_bytes", int),
        low_bytes=take(view, "low_bytes", int),
        high_bytes=take(view, "high_bytes", int),
        fits=take(view, "fits", bool),
        slowdown=take(view, "slowdown", float, optional=True),
        exactness=exactness,
        reasons=tuple(take(view, "reasons", list)),
        tried=tuple(take(view, "tried", list) if "tried" in view else ()),
    )


def action_from(view: Any) -> Action:
    name = take(view, "name", str)
    if name == "microbatch" and take(view, "count", int) < 1:
        raise NotAPlan(f"'count' is {view['count']}")
    if name == "compile":
        take(view, "jit_compile", bool)
    if name in ("pool", "allocator"):
        setting, _, value = take(view, "setting", str).partition("=")
        if not (setting and value) or (name == "pool" and not is_share(value)):
            raise NotAPlan(f"'setting' is {view['setting']!r}")
    if name == "remat":
        blocks = take(view, "blocks", list)
        if not all(isinstance(block, list) and all(isinstance(one, str) for one in block) for block in blocks):
            raise NotAPlan("'blocks' is no list of lists of names")
    return action_from_json(view)


def is_share(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


def host_from(view: Any) -> HostPlan | None:
    if view is None:
        return None
    try:
        return HostPlan(**{**view, "actions": tuple(HostAction(**action) for action in view["actions"])})
    except (KeyError, TypeError) as error:
        raise NotAPlan(f"'host' is no plan for RAM ({type(error).__name__}: {error})") from error


def portrait_from(view: dict[str, Any] | None) -> Portrait | None:
    if view is None:
        return None
    try:
        found = portrait_from_json(view)
    except (KeyError, TypeError, AttributeError) as error:
        raise NotAPlan(f"'made_for' describes no model ({type(error).__name__}: {error})") from error
    if view.get("fingerprint") != found.fingerprint:
        raise NotAPlan("'made_for' does not agree with its own fingerprint: it was changed by hand")
    return found


def take(view: Any, key: str, kind: type, *, optional: bool = False) -> Any:
    """What stands under a key, if it is of that kind."""
    if not isinstance(view, dict) or key not in view:
        raise NotAPlan(f"{key!r} is missing")
    value = view[key]
    kinds = (int, float) if kind is float else (kind,)
    fitting = isinstance(value, kinds) and (kind is bool or not isinstance(value, bool))
    if fitting or (optional and value is None):
        return value
    raise NotAPlan(f"{key!r} should be {KINDS[kind]}, and is {value!r:.60}")
