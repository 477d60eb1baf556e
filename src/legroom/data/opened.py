"""A stream of the right kind for its source, and one line that says how it was sized."""

import importlib.util
import os
import sys
from dataclasses import dataclass
from typing import Any

from legroom.data.sources.columns import Samples
from legroom.data.sources.opening import is_records, open_source
from legroom.data.sources.options import Options
from legroom.data.stream import Plan, Stream
from legroom.errors import InputError
from legroom.units import parse_bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """The rest of what `stream` was asked for."""

    batch_size: int
    ram: str | int
    shuffle: bool
    seed: int
    drop_last: bool
    threads: int | None
    workers: int | None
    ragged: bool
    verbose: bool


def planned(source: Any, options: Options, asked: Asked) -> Plan:
    made = open_source(source, options)
    workers = asked.workers if hasattr(made, "work") else None
    if asked.workers and workers is None:
        raise InputError(
            "`workers` run a transform or a sequence written in Python, and here is none.",
            "Leave `workers` out: threads read this source.",
        )
    if workers:
        from legroom.data.workers import Workers

        made = Workers(made, workers)
    users_own = options.transform is not None or (isinstance(made, Samples) and not is_records(source))
    return Plan(
        made,
        asked.batch_size,
        options.budget_bytes,
        asked.seed,
        asked.shuffle,
        asked.drop_last,
        workers or asked.threads or (1 if users_own else os.cpu_count() or 1),
        asked.ragged,
    )


def opened(source: Any, options: Options, asked: Asked) -> Any:
    options.budget_bytes = parse_bytes(asked.ram)
    if is_tf_dataset(source):
        from legroom.data.pipelines import budgeted

        return budgeted(source, options.budget_bytes, asked.batch_size, asked.verbose)
    plan = planned(source, options, asked)
    made = kind_of_stream()(plan)
    if asked.verbose:
        for line in lines(made, asked):
            print(f"legroom: {line}", file=sys.stderr)
    return made


def is_tf_dataset(source: Any) -> bool:
    return "tensorflow" in sys.modules and isinstance(source, sys.modules["tensorflow"].data.Dataset)


def kind_of_stream() -> type[Stream]:
    """What `fit` takes, where there is a Keras to take it."""
    if importlib.util.find_spec("keras") is None:
        return Stream
    from legroom.data.keras_stream import KerasStream

    return KerasStream


def lines(made: Stream, asked: Asked) -> list[str]:
    said = [repr(made), *getattr(made.source, "notes", ())]
    if hasattr(made.source, "said"):
        said.append(made.source.said())
    if made.serial and asked.shuffle:
        said.append("a generator has no index: its samples come in its own order, as it makes them")
    if made.course.length is None:
        said.append(
            "the epoch ends when the generator does; where it never ends, give `samples=` (or fit's steps_per_epoch)"
        )
    return said
