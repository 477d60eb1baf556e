"""The gradients of a trial's slices, put together as the last slice would have them."""

from collections.abc import Mapping
from typing import Any

from legroom.changes.custom_kinds import choose
from legroom.changes.custom_run import Kind, share
from legroom.changes.custom_seen import Seen
from legroom.changes.custom_trial import Trial
from legroom.changes.lookups import are_tables
from legroom.changes.microbatch_loop import Found
from legroom.changes.sparse import add_gradients, with_tables


def tables_in(trials: Mapping[int, Seen]) -> list[tuple[bool, ...]]:
    """Which gradients of each call are tables', from trials of so many samples."""
    first = next(iter(trials.values()))
    each = range(len(first.entries))
    return [are_tables({rows: seen.entries[call] for rows, seen in trials.items()}, first.names[call]) for call in each]


def summed(
    kinds: list[list[set[Kind]]], tables: list[tuple[bool, ...]], trials: list[Trial], shares: tuple[float, ...]
) -> Found:
    """All slices' gradients as the last one would have them; the trials' own are let go."""
    flat = [choose(kind, ("mean", "sum")) for entries in kinds for kind in entries]
    total: list[Any] = [None] * len(flat)
    for portion, trial in zip(shares, trials, strict=True):
        own = with_tables(trial.gradients, [one for call in tables for one in call])
        for place, kind in enumerate(flat):
            total[place] = add_gradients(total[place], share(own[place], kind, portion))
        trial.gradients.clear()
    return Found(tuple(total))
