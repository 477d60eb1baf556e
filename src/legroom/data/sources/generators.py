"""Generators and functions that return iterators: samples one after another, in their own order, of a length that nobody knows."""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from legroom.data.buffers import Buffers
from legroom.data.sources.collating import collate
from legroom.data.structure import leaves
from legroom.errors import InputError, LegroomError


class Serial:
    """Samples that come one after another. With `samples`, an epoch is so many of them."""

    def __init__(self, source: Any, samples: int | None, transform: Callable[[Any], Any] | None) -> None:
        self.again = source if callable(source) else None
        self.once = None if callable(source) else iter(source)
        self.samples, self.transform = samples, transform
        self.epochs = 0
        self.seen: list[Any] = []  # the first samples, taken to measure them, of an iterator that runs only once

    def look(self, count: int) -> list[Any]:
        """The first samples, which will come again."""
        if self.again is not None:
            return list(islice(self.begin(), count))
        if not self.seen:
            self.seen = list(islice(self.once or iter(()), count))
        return self.seen

    def begin(self) -> Iterator[Any]:
        if self.again is not None:
            made = self.again()
            if not hasattr(made, "__iter__"):
                raise InputError(
                    f"The function returned {type(made).__name__}, which gives no samples.",
                    "Give a generator function.",
                )
            return iter(made)
        return self.only()

    def only(self) -> Iterator[Any]:
        while self.seen:
            yield self.seen.pop(0)
        yield from self.once or ()

    def batches(self, size: int, skip: int, drop_last: bool, buffers: Buffers) -> Iterator[Any]:
        """An epoch's batches after the first `skip` samples."""
        samples = self.epoch(skip)
        start = skip
        for first in samples:
            batch = collate(
                chain((first,), islice(samples, size - 1)), np.arange(start, start + size), self.name, buffers
            )
            rows = len(next(leaves(batch))[1])
            if rows == size or not drop_last:
                yield batch
            start += rows
            del batch  # its memory may be used again

    def epoch(self, skip: int) -> Iterator[Any]:
        running = self.begin()
        used = 0
        while self.samples is None or used < self.samples:
            try:
                sample = next(running)
            except StopIteration:
                self.ended(used)
                return
            except LegroomError:
                raise
            except Exception as error:
                raise InputError(
                    f"The generator failed at sample {used:,}: {type(error).__name__}: {error}.",
                    "No step has seen a part of its batch.",
                ) from error
            used += 1
            if used > skip:
                yield sample if self.transform is None else self.transform(sample)
        self.epochs += 1

    def ended(self, used: int) -> None:
        """An end where one was to be expected, or an error."""
        if self.samples is not None:
            raise InputError(
                f"The generator ended after {used:,} of the {self.samples:,} samples that were promised for an epoch.",
                "Give its real length as `samples`, or a function that makes a new generator for each epoch.",
            )
        if used == 0 and self.epochs:
            raise InputError(
                "The generator is used up: it gave its samples in the first epoch, and cannot start again.",
                "Give the function that makes it, not what it returned.",
            )
        if used == 0:
            raise InputError("The generator gives no samples.", "Give one that yields at least one.")
        self.epochs += 1

    def name(self, index: int) -> str:
        return f"{index} of the generator"
