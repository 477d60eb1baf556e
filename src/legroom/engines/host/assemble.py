"""The host's half of an estimate: from the description of a training's data to a HostEstimate. Nothing here needs a framework."""

import os
from dataclasses import replace

from legroom.engines.host.arrays import (
    CONSUMED,
    array_holdings,
    dataset_holdings,
    generator_holdings,
    late,
    own_arrays,
    streamed_holdings,
)
from legroom.engines.host.base import Process, base_holdings
from legroom.engines.host.holdings import Holding, Machine
from legroom.engines.host.limits import Limits, read_limits
from legroom.engines.host.pipeline import pipeline_holdings
from legroom.engines.host.sources import stages_of
from legroom.engines.host.span import Span, ordered, total
from legroom.engines.host.stages import Data
from legroom.records import Framework
from legroom.records.host import HostEstimate, HostPart
from legroom.units import format_bytes

WORTH_A_WORD_BYTES = 10_000_000


def host_estimate(data: Data, process: Process, limits: Limits | None = None) -> HostEstimate:
    """What the training process will take of RAM at its fullest, and the limit that holds for it."""
    limits = limits or read_limits()
    limit = limits.tightest
    machine = machine_of(limits, process.cores or usable_cores())
    data_parts, notes = data_holdings(data, process.framework, machine)
    holdings = [*base_holdings(process), *data_parts]
    if process.current_rss_bytes is not None:
        holdings = [item for item in holdings if item.phase not in ("own", "made") and not item.before_fit]
    else:
        notes = (*notes, *unseen_arrays(data))
    parts = tuple(part_of(item) for item in at_the_peak(holdings))
    peak = total([Span(part.low_bytes, part.size_bytes, part.high_bytes) for part in parts])
    return HostEstimate(
        peak_bytes=peak.size,
        low_bytes=peak.low,
        high_bytes=peak.high,
        limit_bytes=limit.limit_bytes,
        limit_reason=limit.reason,
        parts=parts,
        notes=tuple(dict.fromkeys((*data.notes, *notes, *limits.notes))),
    )


def machine_of(limits: Limits, cores: int) -> Machine:
    limit_bytes = limits.tightest.limit_bytes
    return Machine(cores, limit_bytes, max(1, limit_bytes // 2))


def growth_of(data: Data, framework: Framework, machine: Machine) -> Span:
    """What data and pipeline alone add to a process that has its arrays already: the number that can be measured."""
    holdings, _ = data_holdings(data, framework, machine)
    return total([item.bytes for item in at_the_peak(holdings) if item.phase != "own"])


def data_holdings(data: Data, framework: Framework, machine: Machine) -> tuple[list[Holding], tuple[str, ...]]:
    """All that the data takes, training's and validation's."""
    notes: tuple[str, ...] = ()
    found = own_arrays(data.arrays, "arrays") + own_arrays(data.kept_arrays, "arrays beside the dataset")
    match data.kind:
        case "dataset" if data.pipeline is not None:
            held = pipeline_holdings(data.pipeline, machine, CONSUMED[framework])
            found, notes = found + list(held.buffers), held.notes
        case "arrays" if data.streamed is not None:
            found = streamed_holdings(data)
        case "arrays":
            found += array_holdings(data, framework, machine.cores)
        case "generator":
            found += generator_holdings(data, framework)
        case "pydataset":
            more, notes = dataset_holdings(data, framework)
            found += more
    if data.validation is not None:
        more, later = data_holdings(data.validation, framework, machine)
        found += [late(replace(item, name=f"validation: {item.name}")) for item in more]
        notes = (*notes, *data.validation.notes, *later)
    return [item for item in found if item.bytes.high], notes


def unseen_arrays(data: Data) -> tuple[str, ...]:
    """A dataset does not tell whether the arrays that it was made from are still alive."""
    stages = [] if data.pipeline is None else stages_of(data.pipeline.stage)
    size_bytes = sum(stage.kept_bytes for stage in stages if not stage.given)
    if size_bytes < WORTH_A_WORD_BYTES or data.kept_arrays:
        return ()
    return (
        f"The arrays that the dataset was made from are not counted: {format_bytes(size_bytes)} more while the script keeps "
        "them (del them once the dataset is made).",
    )


def at_the_peak(holdings: list[Holding]) -> list[Holding]:
    """What is there at the fullest moment: the running training, or its start if that takes more."""
    lasting = [item for item in holdings if item.phase != "start"]
    running = total([item.bytes for item in lasting if item.phase == "running"])
    starting = [item for item in holdings if item.phase == "start"]
    start = total([item.bytes for item in starting])
    more = start.over(running)
    if not more.high:
        return lasting
    names = ", ".join(dict.fromkeys(item.name for item in starting))
    why = f"the start takes this much more than what runs afterwards: {names}"
    return [*lasting, Holding("copies made at the start", more, why, "start")]


def part_of(item: Holding) -> HostPart:
    span = ordered(item.bytes.low, item.bytes.size, item.bytes.high)
    return HostPart(item.name, span.low, span.size, span.high, item.why)


def usable_cores() -> int:
    """The cores that this process may use, which is what tf.data calls the number of cores."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
