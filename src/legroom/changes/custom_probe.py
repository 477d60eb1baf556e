"""How a user's training step adds its samples up, found out by trying it: once whole, and once in slices as it would run.

It is tried with the weights that it has, and with others.
Each gradient is a mean over the samples, a sum of them, or neither, in which case the step is refused. What reaches the
optimizer, what is assigned and what is returned must come out of slices as they do of the whole. The data are a few rows: of
the batch where there is one, and made-up ones, also with entries that are often left out of losses (0, -1, 255, -100, -999, NaN)
and with the numbers that the step is heard to compare its data with (`custom_marks`).
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from legroom.capture.quiet import unheard
from legroom.changes import custom_counts
from legroom.changes.bends import Bend, Bends
from legroom.changes.custom_arguments import Arguments, concrete, front_of
from legroom.changes.custom_bends import compare_bent
from legroom.changes.custom_failed import failure
from legroom.changes.custom_flow import Flow
from legroom.changes.custom_hooks import listened
from legroom.changes.custom_kinds import LOOSE, MASKED, TOLERANCE, Candidates, Judge
from legroom.changes.custom_marks import (
    MOST,
    Numbers,
    comparing,
    fits,
    marked,
    marks_of,
    sets_of,
)
from legroom.changes.custom_rows import is_far, made_up, told_by
from legroom.changes.custom_run import Kinds, cannot
from legroom.changes.custom_seen import Known, Seen
from legroom.changes.custom_sizes import compare_sizes
from legroom.changes.custom_stages import compare_later, compare_switched
from legroom.changes.custom_sums import summed, tables_in
from legroom.changes.custom_trial import Trial
from legroom.changes.custom_weights import other_weights, restore
from legroom.changes.cutting import FEW, Cutting
from legroom.changes.forced import PATTERNS, Forced, Shape, with_a_row_each
from legroom.changes.hearing import hearing
from legroom.changes.made_up import CUTS, IGNORED, ROWS, rows_of
from legroom.changes.microbatch_kinds import eagerly
from legroom.changes.microbatch_loop import Found
from legroom.errors import LegroomError

STYLES = ("signed", "binary", *IGNORED)
LARGER = (4.0, 30.0)  # times
Pattern = tuple[int, frozenset[int]]  # of truths, and which comparisons get them
MOST_RUNS = 48  # of a few rows each, to try marks with


def find_kinds(
    function: Callable[..., Any], arguments: Arguments, size: int | None = None, *, even: bool = False
) -> Kinds:
    """Try the step out; nothing of it is changed. Raises InputError where it cannot be run in slices: of this size where it is known, all of them `even` or not."""
    with unheard():
        return eagerly(Probe(function, arguments, size, even).run)


@dataclass
class Probe:
    """The trials of one step."""

    function: Callable[..., Any]
    arguments: Arguments
    size: int | None = None  # of a slice
    even: bool = False
    known: Known = field(default_factory=Known)
    real_rows: Callable[..., list[Any]] | None = None
    heard: list[Numbers] = field(default_factory=list)
    compared: dict[tuple[int, int], list[Shape]] = field(
        default_factory=dict
    )  # samples, in the trial of these rows that was last
    met: dict[tuple[int, int], list[Bend]] = field(default_factory=dict)  # what bends, in the same
    made_bytes: dict[int, int] = field(default_factory=dict)  # by the trial of so many rows that was last
    told: set[float] = field(default_factory=set)  # marks of which a trial has said something
    runs: int = 0
    has_updated: bool = False  # in some trial
    cutting: Cutting = FEW  # of the trials that are being made
    usual: Callable[..., list[Any]] | None = None  # the first data that said something
    flipped: frozenset[int] = frozenset()  # truths that come out otherwise in the trials that are being made

    def run(self) -> Kinds:
        refused: LegroomError | None = None
        kinds: Kinds | None = None
        try:
            kinds = self.compare_all().decided(self.known)
        except LegroomError as error:
            refused = error
        finally:
            changed = restore(self.known)
        if changed:
            raise cannot(f"updates {changed!r} in a way that cannot be held back", "Update with a Keras optimizer.")
        if kinds is None:
            assert refused is not None
            raise refused
        return kinds

    def compare_all(self) -> Candidates:
        """What is left after all trials that could be made."""
        found: Candidates | None = None
        failed: BaseException | None = None
        for make in self.data():
            try:
                new = self.compare(make(), loosely=is_far(make))
            except LegroomError:
                raise
            except Exception as error:  # noqa: BLE001 - the user's own, on data that may not suit it
                failed = failed or error
                if make is self.real_rows:
                    break
                continue
            if new is not None:
                self.told |= told_by(make)
                self.usual = self.usual or make
                found = new if found is None else found.both(new)
        if found is not None:
            found = self.compare_with_marks(found)
            found = self.compare_forced(found)
            found = compare_bent(self, found)
            found = self.compare_with_other_weights(found)
            if any(numbers.equal or numbers.ordered for numbers in self.heard):  # with what is computed, perhaps
                for scale in LARGER:
                    found = self.compare_with_other_weights(found, scale)
            found = compare_sizes(self, found)
            found = compare_later(self, found)
            found = compare_switched(self, found)
        if found is not None and not self.has_updated:  # one that looks at its gradients first need not update in each
            raise cannot(
                "updates nothing in any of its trials: gradients are taken, and neither an optimizer is applied nor a variable assigned",
                "Decorate the function that applies the gradients too.",
            )
        if found is None and self.built():
            return self.compare_all()
        if found is None:
            why = failure(failed)
            raise why from (None if why is failed else failed)
        return found

    def built(self) -> bool:
        """Builds the optimizers that the step applies, whose slots it may read in the same call; updates are held back in trials, and with them what
        they build. False where nothing is to be built."""
        waiting, self.known.unbuilt = self.known.unbuilt, {}
        for optimizer, variables in waiting.values():
            optimizer.build(variables)
        return any(optimizer.built for optimizer, _ in waiting.values())

    def compare_with_marks(self, found: Candidates) -> Candidates:
        """The numbers that the step compares something with, several at once; one array and one number at a time where that
        says nothing, such as with ids that an embedding does not have."""
        if len(self.data()) == 1:  # with text among them
            return found
        rows = self.real_rows() if self.real_rows is not None else made_up(self.arguments.batch, "unit")
        marks = [
            one for one in marks_of(self.heard) if one not in self.told and any(fits(values, one) for values in rows)
        ]
        waiting = [(some, list(range(len(rows)))) for some in sets_of(marks[:MOST])]
        last = self.runs + MOST_RUNS
        while waiting and self.runs < last:
            some, places = waiting.pop(0)
            arrays = marked(rows, some, places)
            new = None if arrays is None else self.compare_or_none(arrays)
            if new is not None:
                found = found.both(new)
            elif arrays is not None and len(places) > 1:
                waiting += [(some, [place]) for place in places]
            elif arrays is not None and len(some) > 1:
                waiting += [([one], places) for one in some]
        return found

    def compare_forced(self, found: Candidates) -> Candidates:
        """Whatever samples are compared with: some of the comparisons are made to come out true, and others not."""
        import tensorflow as tf

        make = self.data()[0]
        if self.compare_or_none(make()) is None:
            return found
        parts = [(stop - start, self.compared[start, stop]) for start, stop in CUTS]
        which = with_a_row_each(self.compared[0, ROWS], parts)
        for pattern in range(PATTERNS if which else 0):
            with tf.device("CPU:0"):
                new = self.compare_or_none(make(), (pattern, which))
            found = found if new is None else found.both(new)
        return found

    def compare_or_none(self, arrays: list[Any], forced: Pattern | None = None) -> Candidates | None:
        try:
            return self.compare(arrays, loosely=True, forced=forced)
        except LegroomError:
            raise
        except Exception:  # noqa: BLE001 - the user's own, on data that may not suit it
            return None

    def compare_with_other_weights(self, found: Candidates, scale: float = 1.0) -> Candidates:
        """Before anything is learned losses may be the same for all samples, and gradients zero: not with weights at random. With
        larger ones a model is as sure of itself as a trained one, and goes beyond thresholds."""
        with other_weights(self.known, scale):
            for make in self.data()[:2]:
                try:
                    new = self.compare(make(), loosely=scale != 1)
                except LegroomError:
                    raise
                except Exception:  # noqa: BLE001 - the user's own, with weights that may not suit it
                    continue
                if new is not None:
                    return found.both(new)
        return found

    def data(self) -> list[Callable[[], list[Any]]]:
        """Real rows first, where the batch is here, then made-up ones."""
        import numpy as np

        batch = self.arguments.batch
        made: list[Callable[[], list[Any]]] = [partial(made_up, batch, style) for style in STYLES]
        real = all(isinstance(leaf, np.ndarray) or hasattr(leaf, "numpy") for leaf in batch)
        if not real or any((front_of(leaf) or 0) < ROWS for leaf in batch):
            return made
        self.real_rows = lambda rows=ROWS: [np.asarray(leaf[:rows]) for leaf in batch]
        text = any(np.asarray(leaf[:1]).dtype.kind in "OSU" for leaf in batch)
        return [self.real_rows, *(() if text else made)]

    def try_rows(
        self,
        arrays: list[Any],
        rows: tuple[int, int],
        totals: Found | None = None,
        forced: Pattern | None = None,
        bends: Bends | None = None,
    ) -> Trial:
        start, stop = rows
        tensors = rows_of(arrays, start, stop)
        flow = Flow(tensors, None if forced is None else Forced(forced[0], rows, forced[1]), bends)
        trial = Trial(
            self.known,
            flow,
            early_slice=totals is None and stop - start < self.cutting.rows,
            totals=totals,
            flipped=self.flipped,
        )
        args, kwargs = self.arguments.filled(tensors, concrete)
        self.runs += 1
        if whole := stop - start == self.cutting.rows:
            self.heard.append(Numbers(tensors))

        def run_slice() -> Any:
            return self.function(*args, **kwargs)

        try:
            with listened(trial), hearing(flow.heard), comparing(self.heard[-1]) if whole else nullcontext():
                trial.returned(run_slice())
        except Exception:
            if trial.error is not None:  # TensorFlow has written around it
                raise trial.error from None
            raise
        finally:
            self.compared[rows] = flow.compared
            self.made_bytes[stop - start] = flow.made_bytes
            if forced is None and bends is None:
                self.met[rows] = flow.bends.met
            trial.put_back()
        return trial

    def compare(self, arrays: list[Any], *, loosely: bool = False, forced: Pattern | None = None) -> Candidates | None:
        """What the slices can be of the whole; None where the numbers say nothing."""
        if not self.known.built:
            self.try_rows(arrays, self.cutting.cuts[-1])
            self.known.built = True
        whole = self.try_rows(arrays, (0, self.cutting.rows), forced=forced).seen
        check(whole)
        self.has_updated = self.has_updated or bool(whole.applied or whole.assigned)
        if loosely and not whole.tells():
            return None
        trials = [self.try_rows(arrays, cut, forced=forced) for cut in self.cutting.cuts]
        parts = [trial.seen for trial in trials]
        self.check_draws(whole, parts[0])
        if not whole.tells():
            return None
        if not all(seen.finite() for seen in parts):
            if self.known.half:
                return None  # a slice's mean has larger gradients than the batch's
            raise cannot("has no finite gradients for a slice, where it has for the whole batch", MASKED)
        if any(seen.outline() != whole.outline() for seen in parts):
            raise cannot("takes other gradients of a slice than of the whole batch")
        judge = Judge(LOOSE if self.known.half or loosely else TOLERANCE, self.cutting.shares)
        gradients = judge.gradients(whole, parts)
        tables = tables_in(
            {self.cutting.rows: whole}
            | {stop - start: part for (start, stop), part in zip(self.cutting.cuts, parts, strict=True)}
        )
        totals = summed(gradients, tables, trials, self.cutting.shares)
        last = self.try_rows(arrays, self.cutting.cuts[-1], totals, forced).seen
        if (last.outline(), last.updates()) != (whole.outline(), whole.updates()):
            raise cannot("updates something else with a slice than with the whole batch")
        judge.check_updates(whole, parts, last)
        self.try_counts(arrays, whole)
        judge.check_metrics(whole, parts, self.known.added)
        return judge.candidates(gradients, tables, whole, parts, last)

    def try_counts(self, arrays: list[Any], whole: Seen) -> None:
        """What metrics make of other numbers than those that they hold."""
        if custom_counts.unknown(whole.counted, self.known.added):
            with custom_counts.moved(list(self.known.counts.values())):
                again = self.try_rows(arrays, (0, self.cutting.rows)).seen
            self.known.added |= custom_counts.added(whole.counted, again.counted)

    def check_draws(self, whole: Seen, part: Seen) -> None:
        if whole.repeated != part.repeated:
            raise cannot(
                "draws random numbers for its samples with a seed that stays as it is, so that all slices would have the same",
                "Draw them with a keras.random.SeedGenerator or a tf.random.Generator, or with tf.random.normal and the like.",
            )
        batch = front_of(self.arguments.batch[0])
        for size, sliced in zip(whole.sizes, part.sizes, strict=False):
            if batch is not None and batch > 1 and size == sliced == batch:
                raise cannot(
                    f"draws random numbers for {batch} samples, however many there are in a slice",
                    "Draw as many as the batch has: tf.random.normal((tf.shape(x)[0], ...)).",
                )


def check(whole: Seen) -> None:
    if not whole.gradients:
        raise cannot(
            "takes no gradients of variables with a tf.GradientTape", "Decorate the function that opens the tape."
        )
