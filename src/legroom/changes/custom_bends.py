"""A user's step whose numbers of the whole batch come out on the other side of what bends: its gradients must be what they were, a mean or a sum.

Numbers that it returns, or gives to metrics, are no matter here, nor is what it computes from gradients.
"""

from typing import TYPE_CHECKING

from legroom.changes.bends import MOST, PLACES, Bend, Bends, names_of, of_the_batch
from legroom.changes.custom_kinds import LOOSE, TOLERANCE, Candidates, Judge
from legroom.changes.custom_run import cannot
from legroom.changes.custom_seen import Seen
from legroom.changes.forced import PATTERNS
from legroom.errors import InputError, LegroomError

if TYPE_CHECKING:
    from legroom.changes.custom_probe import Probe


def compare_bent(probe: "Probe", found: Candidates) -> Candidates:
    """All at once; one after the other where the user's code does not run so."""
    which = of_the_batch([probe.met.get(place, []) for place in PLACES])
    for pattern in range(PATTERNS if which else 0):
        alone = [] if compare_once(probe, found, pattern, which) else list(which)[:MOST]
        for number in alone:
            compare_once(probe, found, pattern, {number: which[number]})
    return found


def compare_once(probe: "Probe", found: Candidates, pattern: int, which: dict[int, Bend]) -> bool:
    """Whether the gradients say something; what they leave of those that were found is noted there."""
    trials = seen_bent(probe, pattern, which)
    if trials is None or not all(seen.finite() for seen in trials):
        return False
    whole, *parts = trials
    if any(seen.outline()[0] != whole.outline()[0] for seen in parts):
        raise bends(which)
    try:
        kinds = Judge(LOOSE if probe.known.half else TOLERANCE).gradients(whole, parts)
    except InputError as error:
        raise bends(which) from error
    if [len(entries) for entries in kinds] != [len(entries) for entries in found.gradients]:
        return True
    for entries, others in zip(found.gradients, kinds, strict=True):
        for one, other in zip(entries, others, strict=True):
            if one and not one & other:
                raise bends(which)
            one.intersection_update(other)
    return True


def seen_bent(probe: "Probe", pattern: int, which: dict[int, Bend]) -> list[Seen] | None:
    import tensorflow as tf

    arrays = probe.data()[0]()
    try:
        with tf.device("CPU:0"):
            return [probe.try_rows(arrays, place, bends=Bends(pattern, place, which)).seen for place in PLACES]
    except LegroomError:
        return None
    except Exception:  # noqa: BLE001 - the user's own, which may look after its numbers
        return None


def bends(which: dict[int, Bend]) -> InputError:
    return cannot(
        f"bends at a number of the whole batch ({names_of(which)}), which each slice would do by its own",
        "Let it bend for each sample, before the mean over them, or plan with something other than micro-batches.",
    )
