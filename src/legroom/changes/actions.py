"""Actions done to a live model, one after the other, and undone together."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from legroom.errors import InputError
from legroom.records.plan import Action, Effect, together

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
    """What was done to a model: how exact it is, and the way back."""

    effect: Effect
    undo: Undo


def perform(model: Any, actions: Sequence[Action]) -> Done:
    """Do all of them to the model, or none."""
    unknown = [action.name for action in actions if action.name not in ORDER]
    if unknown:
        raise InputError(f"There is no action {unknown[0]!r}.", f"Known are: {', '.join(ORDER)}.")
    undos: list[Undo] = []
    effects: list[Effect] = []

    def undo() -> None:
        while undos:
            undos.pop()()

    try:
        for action in sorted(actions, key=lambda one: ORDER.index(one.name)):
            back, effect = do_one(model, action)
            undos.append(back)
            effects.append(effect)
    except BaseException:
        with suppress(Exception):
            undo()
        raise
    return Done(together(effects), undo)


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


def do_one(model: Any, action: Action) -> tuple[Undo, Effect]:
    if action.name == "microbatch":
        from legroom.changes import microbatch

        effect = microbatch.effect(model)
        return microbatch.split(model, action["count"]), effect
    if action.name == "remat":
        from legroom.changes import remat

        effect = remat.effect(model, action["blocks"])
        return remat.rematerialise(model, action["blocks"]), effect
    if action.name == "dropout":
        from legroom.changes import dropout

        return dropout.forget_masks(model), Effect()
    if action.name == "compile":
        from legroom.changes import compiling

        effect = compiling.effect(model)
        return compiling.set_compiled(model, action["jit_compile"]), effect
    if action.name == "optimizer":
        from legroom.changes import optimizers

        why = (f"another optimizer learns differently ({action['kind']})",)
        return optimizers.replace_optimizer(model, action["kind"]), Effect("inexact", why)
    if action.name == "host_data":
        from legroom.changes import host_data

        return host_data.keep_in_ram(model), Effect()
    if action.name in ("xla_memory", "pool", "allocator"):
        return lambda: None, Effect()  # nothing of the model: `missing_settings`
    from legroom.changes import precision

    return precision.lower(model, action["policy"]), Effect("inexact", (f"{action['policy']} rounds to fewer bits",))
