"""What the slices of a training step are of the whole: means, sums, rows, the last one's, or nothing that can be put together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from legroom.changes.custom_run import Kind, Kinds, cannot
from legroom.changes.custom_seen import Known, Seen
from legroom.changes.custom_trial import OTHER_GRADIENTS, assigns_samples
from legroom.changes.cutting import FEW
from legroom.errors import InputError
from legroom.records.plan import Exactness

TOLERANCE = 1e-3  # of a gradient
LOOSE = 5e-2  # in 16 bits
CANCELLED = 0.1  # of an update at the most is taken for rounding
SMALL = 1e-6  # of the largest gradient: too little to tell anything by
SUMMED: tuple[Kind, ...] = ("mean", "sum")
OF_THE_BATCH: frozenset[Kind] = frozenset(("last", "constant"))
ORDER: tuple[Kind, ...] = (
    "samples",
    "mean",
    "sum",
    "last",
    "weighted",
)  # a loss may be the same for all slices, as long as nothing is learned
MASKED = (
    "A mean or a sum over samples can be; a mean over what a mask leaves, a sum with a penalty on weights, and a loss that "
    "compares samples cannot."
)


@dataclass
class Candidates:
    """The kinds that each value can still be."""

    gradients: list[list[set[Kind]]]
    tables: list[tuple[bool, ...]]
    scalars: list[set[Kind]]
    outputs: list[set[Kind]]
    numbers: list[Any] = field(default_factory=list)  # the whole batch's, of scalars and of outputs
    values: list[Any] = field(default_factory=list)

    def both(self, other: "Candidates") -> "Candidates":
        """What is left after two trials."""
        if self.outline() != other.outline() or self.tables != other.tables:
            raise cannot("takes other gradients, or returns something else, depending on its data")
        pairs = zip(self.gradients, other.gradients, strict=True)
        return Candidates(
            [[a & b for a, b in zip(mine, its, strict=True)] for mine, its in pairs],
            self.tables,
            alike(self.scalars, other.scalars, self.numbers, other.numbers),
            alike(self.outputs, other.outputs, self.values, other.values),
            self.numbers,
            self.values,
        )

    def outline(self) -> Any:
        return [len(entries) for entries in self.gradients], len(self.scalars), len(self.outputs)

    def decided(self, known: Known) -> Kinds:
        for what, each, of_one in (
            ("number for a metric", self.scalars, 2),
            ("value that it returns", self.outputs, 1),
        ):
            for number, kinds in enumerate(each):
                if not kinds:
                    raise cannot(
                        f"makes a {what} (number {number // of_one + 1}) that is no mean, sum or row of values of its samples",
                        "Leave it out of the step, or use a Keras metric.",
                    )
        exactness: Exactness = "inexact" if known.reasons else "equivalent" if known.random else "exact"
        drawn = ("random numbers are drawn for each slice by itself",) if known.random else ()
        return Kinds(
            tuple(map(decided_gradients, self.gradients)),
            tuple("mean" if "mean" in kinds else chosen_value(kinds) for kinds in self.scalars),
            tuple(chosen_value(kinds) for kinds in self.outputs),
            exactness,
            tuple(known.reasons) or drawn,
            tuple(self.tables),
            tuple(known.inlined),
        )


def alike(mine: list[set[Kind]], its: list[set[Kind]], values: Sequence[Any], others: Sequence[Any]) -> list[set[Kind]]:
    """What each value can be after two trials. What is the same for all slices, but another in each trial (a share of samples, 0 of these and 1 of
    those), is no constant; a truth is then nothing that slices could be put together to."""
    import numpy as np

    found = []
    for a, b, value, other in zip(mine, its, values, others, strict=True):
        kinds = a & b
        if "constant" in kinds and not np.array_equal(value, other, equal_nan=is_float(value) and is_float(other)):
            kinds = kinds - {"constant", "last"} if is_truth(value) else kinds - {"constant"}
        found.append(kinds)
    return found


def is_float(value: Any) -> bool:
    return getattr(getattr(value, "dtype", None), "kind", "") == "f"


def is_truth(value: Any) -> bool:
    return getattr(getattr(value, "dtype", None), "kind", "") == "b"


def chosen_value(kinds: set[Kind]) -> Kind:
    """What no sample and no weight changes is the last slice's: it may be a metric's, which is updated meanwhile."""
    return "last" if "constant" in kinds else choose(kinds, ORDER)


def decided_gradients(entries: list[set[Kind]]) -> tuple[Kind, ...]:
    """One kind for each variable; where all gradients of one were zero, that of the others."""
    certain = [kinds for kinds in entries if len(kinds) == 1]
    if not all(entries) or not certain:
        raise InputError(
            "Whether the gradients of this training step are a mean over the samples or a sum of them could not be found "
            "out: on a few samples they were zero, or now one and now the other.",
            MASKED,
        )
    shared = set.intersection(*certain)
    if not shared and len(certain) < len(entries):
        raise cannot("takes gradients that are partly means and partly sums, and some were zero when it was tried out")
    return tuple(choose(kinds & shared or kinds, SUMMED) for kinds in entries)


@dataclass(frozen=True)
class Judge:
    """Compares what a batch gave with what its slices did, which are these shares of it."""

    tolerance: float
    shares: Sequence[float] = FEW.shares

    def close(self, found: Any, wanted: Any, size: float = 0.0) -> bool:
        """`size` is that of what was added up, where it may cancel out."""
        if found.shape != wanted.shape:
            return False
        return norm(found - wanted) <= self.tolerance * max(norm(wanted), size) + 1e-12

    def gradients(self, whole: Seen, parts: list[Seen]) -> list[list[set[Kind]]]:
        """For each gradient of each call what it can be; refused where it is nothing."""
        return [
            self.of_one_call(entries, [part.gradients[number] for part in parts])
            for number, entries in enumerate(whole.gradients)
        ]

    def of_one_call(self, whole: list[Any], parts: list[list[Any]]) -> list[set[Kind]]:
        scale = max((norm(entry) for entry in whole if entry is not None), default=0.0)
        found: list[set[Kind]] = []
        for number, entry in enumerate(whole):
            slices = [part[number] for part in parts]
            if entry is None or max(map(norm, (entry, *slices))) <= SMALL * scale:
                found.append(set(SUMMED))
                continue
            size = max(map(norm, slices))
            kinds = {kind for kind in SUMMED if self.close(total(kind, slices, self.shares), entry, size)}
            if not kinds:
                raise InputError(
                    "The gradients of this training step are neither a mean over the samples nor a sum of them, so that "
                    "it cannot be run in slices of the batch.",
                    MASKED,
                )
            found.append(kinds)
        return found

    def candidates(
        self,
        gradients: list[list[set[Kind]]],
        tables: list[tuple[bool, ...]],
        whole: Seen,
        parts: list[Seen],
        last: Seen,
    ) -> Candidates:
        def each(name: str) -> list[set[Kind]]:
            found = zip(last.of_slice[name], *(getattr(seen, name) for seen in (whole, last, *parts)), strict=True)
            return [
                self.of_batch(value, others[0]) or self.of_sizes(value, others[1:])
                if of_slice is False
                else self.of_value(value, others[1:], others[0]) - (OF_THE_BATCH if of_slice else frozenset())
                for of_slice, value, *others in found
            ]

        scalars = each("scalars")
        for number, kinds in enumerate(scalars[::2]):
            self.add_weighted(kinds, *(seen.scalars[2 * number : 2 * number + 2] for seen in (whole, *parts)))
        return Candidates(gradients, tables, scalars, each("outputs"), whole.scalars, whole.outputs)

    def add_weighted(self, kinds: set[Kind], whole: list[Any], *parts: list[Any]) -> None:
        """A number may also be the mean of the slices' own with the weights that come with it."""
        if any(weight is None for _, weight in (whole, *parts)):
            return
        if self.close(sum(value * weight for value, weight in parts), whole[0] * whole[1]):
            kinds.add("weighted")

    def of_batch(self, whole: Any, last: Any) -> set[Kind]:
        """What no sample is in, but perhaps the batch's gradients, is what the last slice has."""
        import numpy as np

        if not is_float(whole):
            return {"last"} if np.array_equal(whole, last) else set()
        return {"last"} if not np.all(np.isfinite(whole)) or self.close(last, whole) else set()

    def of_sizes(self, whole: Any, parts: list[Any]) -> set[Kind]:
        """A whole number that no sample is in, and that is another one for a slice: Python has counted samples, as in `tf.size`."""
        import numpy as np

        whole_numbers = all(is_float(one) and np.array_equal(one, np.rint(one)) for one in (whole, *parts))
        return {"sum"} if whole_numbers and np.array_equal(sum(parts), whole) else set()

    def of_value(self, whole: Any, parts: list[Any], last: Any) -> set[Kind]:
        """How a number or an array of samples is made of the slices' own."""
        import numpy as np

        if is_truth(whole):
            return {"last", "constant"} if all(np.array_equal(whole, other) for other in (last, *parts)) else set()
        if not isinstance(whole, np.ndarray) or whole.dtype.kind != "f":
            return {"last", "constant"} if whole is None or np.array_equal(whole, last) else set()
        if not np.all(np.isfinite(whole)):
            return {*ORDER, "constant"}
        kinds: set[Kind] = {"last"} if self.close(last, whole) else set()
        if all(np.array_equal(whole, other) for other in (last, *parts)):
            kinds.add("constant")
        if all(part.shape == whole.shape for part in parts):
            return kinds | {kind for kind in SUMMED if self.close(total(kind, parts, self.shares), whole)}
        rows = all(part.ndim and part.shape[1:] == whole.shape[1:] for part in parts)
        return kinds | ({"samples"} if rows and self.close(np.concatenate(parts), whole) else set())

    def check_metrics(self, whole: Seen, parts: list[Seen], is_added: dict[int, bool]) -> None:
        """What metrics count must add up over slices, or be the largest or the smallest where it is not added to what there was."""
        import numpy as np

        if any(len(part.counted) != len(whole.counted) for part in parts):
            return
        each = zip(whole.adding, whole.counted, *(part.counted for part in parts), strict=True)
        for number, (adding, (name, held, after), *others) in enumerate(each):
            found = [other[2] for other in others]
            if any(one.shape != after.shape or not np.all(np.isfinite(one)) for one in (after, *found)):
                continue
            added = sum(one - held for one in found)
            size = max(norm(one - held) for one in found)
            many = () if adding or is_added.get(number) else (np.maximum.reduce, np.minimum.reduce)
            if not any(self.close(combined(found), after) for combined in many) and not self.close(
                added, after - held, size
            ):
                raise cannot(
                    f"gives the metric {name!r} what does not add up over the slices: one number for the batch, say",
                    "Give it a value for each sample, or make it a keras.metrics.Mean of one number.",
                )

    def check_updates(self, whole: Seen, parts: list[Seen], last: Seen) -> None:
        """What is applied and assigned after the last slice must be what the whole batch would have it be."""
        for number, (wanted, found) in enumerate(zip(whole.applied, last.applied, strict=True)):
            scale = max((norm(one) for one in wanted if one is not None), default=0.0)
            least = scale * SMALL / self.tolerance
            times = self.cancelled(whole, parts, number, len(wanted))
            for one, other, more in zip(wanted, found, times, strict=True):
                size = max(least, more * norm(one)) if one is not None else least
                if (one is None) != (other is None) or (one is not None and not self.close(other, one, size)):
                    raise cannot(*OTHER_GRADIENTS)
        for (name, before), (_, after) in zip(whole.assigned, last.assigned, strict=True):
            if len(before) != len(after) or not all(map(self.close, after, before)):
                raise assigns_samples(name)

    def cancelled(self, whole: Seen, parts: list[Seen], number: int, count: int) -> list[float]:
        """How many times larger the slices' gradients are than the whole batch's, in which they cancel out: so much larger is
        rounding. For each variable, or, where it is not known whose gradient was applied, the most of all."""

        def times(entry: Any, slices: list[Any]) -> float:
            if entry is None or not norm(entry):
                return 1.0
            return min(max(max(map(norm, slices)) / norm(entry), 1.0), CANCELLED / self.tolerance)

        found = [
            [times(entry, [part.gradients[call][k] for part in parts]) for k, entry in enumerate(entries)]
            for call, entries in enumerate(whole.gradients)
        ]
        if len(found) == len(whole.applied) and len(found[number]) == count:
            return found[number]
        return [max((one for each in found for one in each), default=1.0)] * count


def choose(kinds: set[Kind], order: Sequence[Kind]) -> Kind:
    return next(kind for kind in order if kind in kinds)


def norm(values: Any) -> float:
    import numpy as np

    return float(np.linalg.norm(np.ravel(values)))


def total(kind: Kind, parts: Sequence[Any], shares: Sequence[float]) -> Any:
    return sum(portion * part if kind == "mean" else part for portion, part in zip(shares, parts, strict=True))
