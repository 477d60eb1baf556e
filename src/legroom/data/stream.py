"""`legroom.stream`: anything with samples, as batches within a budget of RAM, shuffled by index, its position kept.

Each `iter()` begins where the stream stands (at first, and after each whole epoch, at the beginning of one), so that looking at
one batch takes nothing away from an epoch. Nothing here knows a framework: `keras_stream` is what `fit` takes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from legroom.data.ahead import in_order, one_after_another
from legroom.data.buffers import Buffers
from legroom.data.measuring import Element, measure
from legroom.data.order import Order
from legroom.data.position import Course, Position, from_state, to_state
from legroom.data.sizing import GROUP_BYTES, Need, Sizes, sizes_for
from legroom.data.sources.columns import Columns
from legroom.data.sources.generators import Serial
from legroom.data.sources.options import Options
from legroom.data.structure import leaves, mapped
from legroom.errors import InputError
from legroom.units import format_bytes


@dataclass(frozen=True, slots=True)
class Run:
    """An epoch, or the rest of one, that is under way."""

    epoch: int
    start: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a stream is made of."""

    source: Any
    batch_size: int
    budget_bytes: int
    seed: int
    shuffle: bool
    drop_last: bool
    threads: int
    ragged: bool = False


class Stream:
    """Batches as NumPy arrays: `for batch in stream`, epoch after epoch; also what `model.fit` takes."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.source = plan, plan.source
        self.serial = isinstance(plan.source, Serial)
        length = plan.source.samples if self.serial else plan.source.length
        self.course = Course(length, plan.batch_size, plan.drop_last)
        if length is not None and not self.course.batches():
            raise InputError(
                f"{length:,} samples are less than one batch of {plan.batch_size}, and drop_last leaves it out.",
                "Use a smaller batch_size.",
            )
        self.order = Order(length or 0, plan.seed, plan.shuffle and not self.serial)
        self.element: Element = measure(plan.source, plan.ragged)
        self.sizes: Sizes = sizes_for(self.need(), plan.budget_bytes, plan.threads, self.group_bytes())
        self.buffers = Buffers()
        self.position = Position()
        self.run = Run(0, 0)
        self.handed = 0
        self.failure: BaseException | None = None

    def need(self) -> Need:
        held = 0 if self.serial else self.source.held_bytes + self.order.held_bytes
        reading = 0 if self.serial else self.source.reading_bytes()
        unpacked = [getattr(column, "unpacked_bytes", 0) for _, column in leaves(getattr(self.source, "columns", ()))]
        if self.serial or not hasattr(self.source, "columns"):  # the samples themselves, before they are a batch
            reading += self.element.sample_bytes * self.plan.batch_size * getattr(self.source, "copies", 1)
        rows = self.plan.batch_size if self.course.length is None else min(self.plan.batch_size, self.course.length)
        return Need(self.element.sample_bytes, rows, reading + sum(unpacked), held)

    def group_bytes(self) -> int:
        if self.serial or self.element.ragged or hasattr(self.source, "copies"):  # of workers: a batch at a time
            return 0
        direct = isinstance(self.source, Columns) and self.source.direct
        return GROUP_BYTES if direct else GROUP_BYTES // 16

    def __len__(self) -> int:
        """The batches of a whole epoch."""
        batches = self.course.batches()
        if batches is None:
            raise TypeError("A generator's length is not known: give it as `samples`.")
        return batches

    def __iter__(self) -> Iterator[Any]:
        run = self.begin()
        count, done = self.course.batches(run.start), 0
        for group in self.groups(run):
            for batch in group:
                done += 1
                if run is self.run:
                    self.handed = done
                if done == count:  # before it is handed over: `fit` never asks for one more
                    self.finish(run)
                yield batch
        if count is None:
            self.finish(run)

    def begin(self) -> Run:
        self.run, self.handed = Run(self.position.epoch, self.position.samples), 0
        return self.run

    def finish(self, run: Run) -> None:
        """All batches of a run were handed over: the next one is of the next epoch."""
        if run is self.run:
            self.position = Position(run.epoch + 1, 0)

    def groups(self, run: Run) -> Iterator[Any]:
        """The run's batches, read ahead, a few small ones at a time."""
        if self.serial:
            batches = self.source.batches(self.plan.batch_size, run.start, self.plan.drop_last, self.buffers)
            for batch in one_after_another(batches, self.sizes.ahead * self.sizes.group):
                yield [self.within(batch, run.start)]
            return
        count = self.group_count(run)
        for group in in_order(lambda number: self.read(run, number), count, self.sizes.threads, self.sizes.ahead):
            rows = len(next(leaves(group))[1])
            yield (mapped(group, itemgetter(place)) for place in range(rows))

    def group_count(self, run: Run) -> int:
        whole, rest = divmod((self.course.length or 0) - run.start, self.plan.batch_size)
        return -(-whole // self.sizes.group) + bool(rest and not self.plan.drop_last)

    def read(self, run: Run, number: int) -> Any:
        """A group: its whole batches along a first axis, or the last, partial batch alone."""
        size, length = self.plan.batch_size, self.course.length or 0
        start = run.start + number * self.sizes.group * size
        whole = min(self.sizes.group, max(0, length - start) // size)
        if whole == 0 or start >= run.start + (length - run.start) // size * size:
            whole, size, start = 1, (length - run.start) % size, length - (length - run.start) % size
        try:
            indices = self.order.indices(run.epoch, start, start + whole * size)
            batch = self.within(self.source.batch(indices, self.buffers), start)
        except BaseException as error:
            self.failure = error
            raise
        return mapped(batch, lambda array: array.reshape((whole, size, *array.shape[1:])))

    def within(self, batch: Any, start: int) -> Any:
        """A batch of unforeseen shape or size is refused before the next one is read beside it."""
        for (path, array), (_, leaf) in zip(leaves(batch), leaves(self.element.signature), strict=True):
            if any(known not in {None, size} for known, size in zip(leaf.shape[1:], array.shape[1:], strict=True)):
                raise InputError(
                    f"Among the {len(array)} samples from {start:,} on of the epoch, the longest is of shape {array.shape[1:]} at {path or 'its top'};"
                    f" those that were measured are all of shape {leaf.shape[1:]}.",
                    "Give ragged=True, which pads each batch to its longest sample, or make all samples alike.",
                )
        size = sum(array.nbytes for _, array in leaves(batch))
        if 2 * size > self.plan.budget_bytes:
            raise InputError(
                f"The batch at sample {start:,} of the epoch takes {format_bytes(size)}, padded to its longest sample;"
                f" the budget is {format_bytes(self.plan.budget_bytes)}.",
                "Cut samples to a length, use a smaller batch_size, or give a larger `ram`.",
            )
        return batch

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Where the stream stands, for a checkpoint: after the batches that a loop has taken, or after the first `batches`
        of the epoch that is under way (for `fit`, whose reader is ahead of its steps)."""
        done = self.handed if batches is None else batches
        begun = Position(self.run.epoch, self.run.start)
        if batches is None and self.position != begun:  # a whole epoch is over, or a state was restored
            begun, done = self.position, 0
        return self.to_state(self.course.after(begun, done))

    def after(self, state: dict[str, Any], batches: int) -> dict[str, Any]:
        """The state so many batches after another one, over the ends of epochs."""
        return self.to_state(self.course.after(self.from_state(state), batches))

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state: the next epoch is the rest of the one that it stood in."""
        self.position = self.from_state(state)
        self.run, self.handed = Run(self.position.epoch, self.position.samples), 0

    def to_state(self, position: Position) -> dict[str, Any]:
        return to_state(position, self.plan.seed, self.order.shuffle, self.course.length)

    def from_state(self, state: dict[str, Any]) -> Position:
        return from_state(state, self.plan.seed, self.order.shuffle, self.course.length)

    def __repr__(self) -> str:
        sizes, batch = self.sizes, self.need().batch_bytes
        many = "samples of a generator" if self.course.length is None else f"{self.course.length:,} samples"
        order = "shuffled by index" if self.order.shuffle else "in their own order"
        ahead = min(sizes.group * sizes.ahead, self.course.batches() or sizes.ahead * sizes.group)
        return (
            f"{many} of {format_bytes(self.element.sample_bytes)} {order}, in batches of {self.plan.batch_size}"
            f" ({format_bytes(batch)}): {sizes.threads} thread{'s' * (sizes.threads > 1)}, {ahead} batches ahead,"
            f" at most {format_bytes(sizes.held_bytes)} of {format_bytes(self.plan.budget_bytes)}"
        )


def stream(  # noqa: PLR0913
    source: Any,
    *,
    batch_size: int = 32,
    ram: str | int = "2GiB",
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
    columns: Any = None,
    transform: Callable[[Any], Any] | None = None,
    image_size: tuple[int, int] | None = None,
    samples: int | None = None,
    threads: int | None = None,
    workers: int | None = None,
    ragged: bool = False,
    scratch: str | Path | None = None,
    verbose: bool = True,
) -> Any:
    """Anything with samples, for `model.fit` and for loops, in at most `ram` bytes of memory: see docs/data.md.

    `columns` names the arrays of a file in the structure that is wanted, as in `columns=("image", "label")`. `transform` is a
    function over each sample. `samples` is the length of a generator's epoch. `threads` read at the same time: as many
    as there are cores, but one where it is the user's code that is run; `workers` are processes that run it. `ragged=True` pads samples of different lengths, which is
    seen by itself where a few of them differ. `scratch` is a folder for data that is compressed.
    """
    from legroom.data.opened import Asked, opened

    for name, value, least in (
        ("batch_size", batch_size, 1),
        ("seed", seed, 0),
        ("threads", threads, 1),
        ("workers", workers, 1),
        ("samples", samples, 1),
    ):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise InputError(
                f"{name}={value!r} is no whole number from {least} on.", f"Give {name}={max(least, 32)}, for example."
            )
    return opened(
        source,
        Options(0, columns, transform, image_size, samples, scratch),
        Asked(batch_size, ram, shuffle, seed, drop_last, threads, workers, ragged, verbose),
    )
