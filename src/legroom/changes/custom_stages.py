"""A step as it will be later on: with other numbers in what it computes with, and with its switches the other way round.

A term of the loss may wait for a counter, a variable or an argument to be another number, and a branch for a truth that no sample decides. With these as they may
become the step must add its samples up as it does now; whatever compares samples then is looked for in slices of several sizes, since half of a few samples may
by chance be the halves of their slices.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from legroom.changes.custom_arguments import front_of
from legroom.changes.custom_kinds import LOOSE, TOLERANCE, Candidates, Judge
from legroom.changes.custom_later import arguments_at, later
from legroom.changes.custom_marks import counts_of, singles_of
from legroom.changes.custom_run import cannot
from legroom.changes.custom_seen import Seen
from legroom.changes.custom_weights import other_weights
from legroom.changes.cutting import FEW, LONG, ODD, SMALL, Cutting, cut_many
from legroom.changes.later_numbers import COUNTS, NUMBERS, STAGES, around, waited
from legroom.errors import LegroomError

if TYPE_CHECKING:
    from legroom.changes.custom_probe import Probe

VARIED = 24  # samples, of which half in each slice are hardly ever half of all
MOST_SWITCHES = 8  # that are turned, one at a time
Make = Callable[..., list[Any]]


def compare_later(probe: "Probe", found: Candidates) -> Candidates:
    """With other numbers."""
    make, now = probe.data()[0], probe.arguments
    with other_weights(probe.known):
        before = whole_or_none(probe, make)
        compared = counts_of(probe.heard)
        counts = (*COUNTS, *(one for one in compared if one not in COUNTS))
        whole = (*NUMBERS, *(one for one in compared if one not in NUMBERS))
        beyond = around(singles_of(probe.heard))
        for stage in range(max(len(counts), len(whole), STAGES + len(beyond) + 1)):
            at = stage, counts, whole, beyond
            with later(probe.known.scalars, probe.function, probe.known.before, at) as names:
                probe.arguments = arguments_at(now, stage, whole)
                try:
                    new = None
                    if is_other(probe, before, make):
                        began = time.perf_counter()
                        new = probe.compare(make())
                        took = time.perf_counter() - began
                        for cutting in cuttings(probe, took)[1:] if new is not None else ():
                            compare_gradients(probe, found, cutting)
                except LegroomError as error:
                    raise waited(error, names) from None
                except Exception:  # noqa: BLE001 - the user's own, on slices
                    continue
                finally:
                    probe.arguments = now
            if new is not None and new.outline() == found.outline():
                found = found.both(new)
    return found


def compare_switched(probe: "Probe", found: Candidates) -> Candidates:
    """With each truth that no sample decides the other way round: `if phase == 3`, `tf.cond(hard, ...)`. Only gradients are compared: not every such truth ever
    comes out otherwise."""
    make = probe.data()[0]
    with other_weights(probe.known):
        before = whole_or_none(probe, make)
        for switch in range(min(MOST_SWITCHES, len(before.truths)) if before is not None else 0):
            probe.flipped = frozenset((switch,))
            try:
                for cutting in ways_to_cut(probe, before, make):
                    compare_gradients(probe, found, cutting)
            except LegroomError as error:
                raise waited(error, []) from None
            finally:
                probe.flipped = frozenset()
    return found


def ways_to_cut(probe: "Probe", before: Seen | None, make: Make) -> list[Cutting]:
    """None where the step does what it did, or cannot go that way."""
    began = time.perf_counter()
    try:
        other = is_other(probe, before, make)
    except LegroomError:
        return []
    return cuttings(probe, 4 * (time.perf_counter() - began)) if other else []


def is_other(probe: "Probe", before: Seen | None, make: Make) -> bool:
    """Whether the step does something else than it did."""
    seen = whole_or_none(probe, make)
    return before is not None and seen is not None and not seen.same(before)


def cuttings(probe: "Probe", took: float) -> list[Cutting]:
    """Where a trial takes so long."""
    batch = front_of(probe.arguments.batch[0])
    rows = VARIED if batch is None else min(VARIED, batch)
    found = [FEW] if probe.even else [FEW, ODD]
    if took < LONG and rows > FEW.rows + SMALL:
        found.append(cut_many(rows, probe.size, even=probe.even))
    return found


def compare_gradients(probe: "Probe", found: Candidates, cutting: Cutting) -> None:
    """What they leave of those that were found is noted there; nothing where the user's code does not run so, or takes other gradients."""
    probe.cutting = cutting
    try:
        make: Make = probe.usual or probe.data()[0]
        arrays = make(rows=cutting.rows)
        whole, *parts = (probe.try_rows(arrays, place).seen for place in cutting.places)
    except Exception:  # noqa: BLE001 - the user's own
        return
    finally:
        probe.cutting = FEW
    if not whole.tells() or not all(seen.finite() for seen in parts):
        return
    if any(seen.outline()[0] != whole.outline()[0] for seen in parts):
        return
    kinds = Judge(LOOSE if probe.known.half else TOLERANCE, cutting.shares).gradients(whole, parts)
    if [len(entries) for entries in kinds] != [len(entries) for entries in found.gradients]:
        return
    for one, other in (
        (one, other) for pair in zip(found.gradients, kinds, strict=True) for one, other in zip(*pair, strict=True)
    ):
        if one and not one & other:
            raise cannot("adds its samples up in one way now and in another one then, as a mean and as a sum")
        one.intersection_update(other)


def whole_or_none(probe: "Probe", make: Make) -> Seen | None:
    try:
        return probe.try_rows(make(), (0, FEW.rows)).seen
    except LegroomError:
        raise
    except Exception:  # noqa: BLE001 - the user's own, with numbers that may not suit it
        return None
