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
from legroom.changes.cutting import FEW, LONG, MANY, ODD, SMALL, Cutting, cut_many
from legroom.changes.later_numbers import COUNTS, NUMBERS, STAGES, around, waited
from legroom.errors import LegroomError

if TYPE_CHECKING:
    from legroom.changes.custom_probe import Probe

VARIED = 24  # samples, of which half in each slice are hardly ever half of all
MOST_SWITCHES = 8  # that are turned, one at a time
Make = Callable[..., list[Any]]


def compare_later(probe: "Probe", found: Candidates) -> Candidates:
    """With other numbers."""
    now = probe.arguments
    with other_weights(probe.known):
        before = Before(probe)
        compared = counts_of(probe.heard)
        counts = (*COUNTS, *(one for one in compared if one not in COUNTS))
        whole = (*NUMBERS, *(one for one in compared if one not in NUMBERS))
        beyond = around(singles_of(probe.heard))
        for stage in range(max(len(counts), len(whole), STAGES + len(beyond) + 1)):
            at = stage, counts, whole, beyond
            with later(probe.known.scalars, probe.function, probe.known.before, at) as names:
                probe.arguments = arguments_at(now, stage, whole)
                try:
                    new = compare_stage(probe, found, before)
                except LegroomError as error:
                    raise waited(error, names) from None
                finally:
                    probe.arguments = now
            if new is not None and new.outline() == found.outline():
                found = found.both(new)
    return found


def compare_stage(probe: "Probe", found: Candidates, before: "Before") -> Candidates | None:
    """What the step is now, where it does something else than it did."""
    began = time.perf_counter()
    if not before.is_other():
        return None
    took = 4 * (time.perf_counter() - began)
    try:
        new = probe.compare(probe.data()[0]())
    except LegroomError:
        raise
    except Exception:  # noqa: BLE001 - the user's own, on few samples
        new = None
    compare_in_sizes(probe, found, took)
    return new


def compare_switched(probe: "Probe", found: Candidates) -> Candidates:
    """With each truth that no sample decides the other way round: `if phase == 3`, `tf.cond(hard, ...)`. Only gradients are compared: not every such truth ever
    comes out otherwise."""
    with other_weights(probe.known):
        before = Before(probe)
        first = before.of(FEW.rows) or before.of(real_cutting(probe).rows)
        for switch in range(min(MOST_SWITCHES, len(first.truths)) if first is not None else 0):
            probe.flipped = frozenset((switch,))
            began = time.perf_counter()
            try:
                other = before.is_other()
            except LegroomError:  # it need not be able to go that way
                other = False
            try:
                if other:
                    compare_in_sizes(probe, found, 4 * (time.perf_counter() - began))
            except LegroomError as error:
                raise waited(error, []) from None
            finally:
                probe.flipped = frozenset()
    return found


class Before:
    """What the step does now, of some numbers of samples."""

    def __init__(self, probe: "Probe") -> None:
        self.probe = probe
        self.known: dict[int, Seen | None] = {FEW.rows: whole_or_none(probe, FEW.rows)}

    def of(self, rows: int) -> Seen | None:
        return self.known.get(rows)

    def is_other(self) -> bool:
        """Whether it does something else meanwhile; with as many samples as it really gets where it raises on few."""
        for rows in dict.fromkeys((FEW.rows, real_cutting(self.probe).rows)):
            seen = whole_or_none(self.probe, rows)
            if seen is None:
                continue
            if rows not in self.known:
                return True  # it cannot be told: it did not raise on few then
            before = self.known[rows]
            return before is not None and not seen.same(before)
        return False


def compare_in_sizes(probe: "Probe", found: Candidates, took: float) -> None:
    """In slices of several sizes, where a trial takes so long; in slices as large as the real ones where the step raises on smaller ones."""
    few = [FEW] if probe.even else [FEW, ODD]
    batch = front_of(probe.arguments.batch[0])
    rows = VARIED if batch is None else min(VARIED, batch)
    if took < LONG and rows > FEW.rows + SMALL:
        few.append(cut_many(rows, probe.size, even=probe.even))
    ran = [compare_gradients(probe, found, cutting) for cutting in few]
    if not all(ran):
        compare_gradients(probe, found, real_cutting(probe))


def real_cutting(probe: "Probe") -> Cutting:
    """As many samples as the batch has, up to a limit, in two slices that are no smaller than the real ones."""
    batch = front_of(probe.arguments.batch[0])
    rows = max(FEW.rows, MANY if batch is None else min(MANY, batch))
    first = probe.size if probe.size is not None and probe.size < rows else rows // 2
    return Cutting(rows, ((0, first), (first, rows)))


def compare_gradients(probe: "Probe", found: Candidates, cutting: Cutting) -> bool:
    """What they leave of those that were found is noted there. Whether the user's code could be run so."""
    probe.cutting = cutting
    try:
        make: Make = probe.usual or probe.data()[0]
        arrays = make(rows=cutting.rows)
        whole, *parts = (probe.try_rows(arrays, place).seen for place in cutting.places)
    except Exception:  # noqa: BLE001 - the user's own
        return False
    finally:
        probe.cutting = FEW
    if not whole.tells() or not all(seen.finite() for seen in parts):
        return True
    if any(seen.outline()[0] != whole.outline()[0] for seen in parts):
        return True
    kinds = Judge(LOOSE if probe.known.half else TOLERANCE, cutting.shares).gradients(whole, parts)
    if [len(entries) for entries in kinds] != [len(entries) for entries in found.gradients]:
        return True
    pairs = (pair for entries in zip(found.gradients, kinds, strict=True) for pair in zip(*entries, strict=True))
    for one, other in pairs:
        if one and not one & other:
            raise cannot("adds its samples up in one way now and in another one then, as a mean and as a sum")
        one.intersection_update(other)
    return True


def whole_or_none(probe: "Probe", rows: int) -> Seen | None:
    probe.cutting = Cutting(rows, ((0, rows),))
    try:
        make: Make = (probe.usual or probe.data()[0]) if rows != FEW.rows else probe.data()[0]
        return probe.try_rows(make(rows=rows) if rows != FEW.rows else make(), (0, rows)).seen
    except LegroomError:
        raise
    except Exception:  # noqa: BLE001 - the user's own, with numbers that may not suit it
        return None
    finally:
        probe.cutting = FEW
