"""Actions done to a live model, one after the other, and undone together."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from legroom.errors import InputError
from legroom.records.plan import Action, Exactness, worst

Undo = Callable[[], None]
ORDER = (  # blocks are recomputed inside each micro-batch, a loss scale is wrapped around the optimizer that stays
    *(
        "pool",
        "allocator",
        "host_data",
        "optimizer",
        "mixed_precision",
        "compile",
        "xla_memory",
        "dropout",
        "remat",
        "microbatch",
    ),
)


@dataclass(frozen=True, slots=True)
class Done:
    """What was done to a model: how exact it is, why it is not exact, and the way back."""

    exactness: Exactness
    reasons: tuple[str, ...]
    undo: Undo


def perform(model: Any, actions: Sequence[Action]) -> Done:
    """Do all of them to the model, or none."""
    unknown = [action.name for action in actions if action.name not in ORDER]
    if unknown:
        raise InputError(f"There is no action {unknown[0]!r}.", f"Known are: {', '.join(ORDER)}.")
    undos: list[Undo] = []
    kinds: list[Exactness] = []
    reasons: list[str] = []

    def undo() -> None:
        while undos:
            undos.pop()()

    try:
        for action in sorted(actions, key=lambda one: ORDER.index(one.name)):
            back, exactness, why = do_one(model, action)
            undos.append(back)
            kinds.append(exactness)
            reasons.extend(why)
    except BaseException:
        with suppress(Exception):
            undo()
        raise
    return Done(worst(kinds), tuple(dict.fromkeys(reasons)), undo)


def missing_settings(actions: Sequence[Action], environment: Mapping[str, str]) -> tuple[str, ...]:
    """What the process must be started with, in words, where it was not: XLA reads its flags, and JAX makes its pool, once."""
    flags = [action["flag"] for action in actions if action.name == "xla_memory"]
    missing = [f"XLA_FLAGS={flag}" for flag in flags if flag not in environment.get("XLA_FLAGS", "").split()]
    for action in actions:
        if action.name == "pool":
            name, _, share = action["setting"].partition("=")
            missing += [] if at_least(environment.get(name), float(share)) else [action["setting"]]
        if action.name == "allocator":
            name, _, value = action["setting"].partition("=")
            missing += [] if environment.get(name) == value else [action["setting"]]
    return tuple(f"this plan holds only in a process that was started with {setting}" for setting in missing)


def at_least(text: str | None, share: float) -> bool:
    try:
        return text is not None and float(text) >= share
    except ValueError:
        return False


def do_one(model: Any, action: Action) -> tuple[Undo, Exactness, tuple[str, ...]]:
    if action.name == "microbatch":
        from legroom.changes import microbatch

        exactness, why = microbatch.exactness(model)
        return microbatch.split(model, action["count"]), exactness, why
    if action.name == "remat":
        from legroom.changes import remat

        exactness, why = remat.exactness(model, action["blocks"])
        return remat.rematerialise(model, action["blocks"]), exactness, why
    if action.name == "dropout":
        from legroom.changes import dropout

        return dropout.forget_masks(model), "exact", ()
    if action.name == "compile":
        from legroom.changes import compiling

        exactness, why = compiling.exactness(model)
        return compiling.set_compiled(model, action["jit_compile"]), exactness, why
    if action.name == "optimizer":
        from legroom.changes import optimizers

        why = (f"another optimizer learns differently ({action['name']})",)
        return optimizers.replace_optimizer(model, action["name"]), "inexact", why
    if action.name == "host_data":
        from legroom.changes import host_data

        return host_data.keep_in_ram(model), "exact", ()
    if action.name in ("xla_memory", "pool", "allocator"):
        return lambda: None, "exact", ()  # nothing of the model: `missing_settings`
    from legroom.changes import precision

    return precision.lower(model, action["policy"]), "inexact", (f"{action['policy']} rounds to fewer bits",)
