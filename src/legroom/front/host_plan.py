"""The plan's half about RAM: what the training process takes of it, and what would make that less."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from legroom.data.sizing import Need, sizes_for
from legroom.engines.host.sources import stages_of
from legroom.engines.host.span import Span
from legroom.engines.host.stages import Data
from legroom.front.estimating import Estimator
from legroom.front.streaming import WORTH_IT_BYTES, is_streamed, streamed
from legroom.front.target import gpu_of_this_machine
from legroom.plans.pipelines import Change, arrays_behind, author_changes
from legroom.records import Estimate, Framework
from legroom.records.host import HostAction, HostPlan
from legroom.units import GIB, MIB

BUDGETS = (2 * GIB, GIB, 512 * MIB, 256 * MIB, 128 * MIB, 64 * MIB)


def host_plan(estimator: Estimator, found: Estimate, ram_bytes: int | None, gpu: str | None) -> HostPlan | None:
    """For the step as it was captured. `ram_bytes` is what the machine that trains has; else this one's limit counts, if it is
    the one that trains and surely has too little."""
    if found.host is None:
        return None
    host = found.host
    if ram_bytes is None and gpu is not None and gpu_of_this_machine() is None:
        return HostPlan(host.peak_bytes, host.high_bytes, None, "the machine that trains is not known: --ram", None)
    limit = host.limit_bytes if ram_bytes is None else ram_bytes
    short = host.low_bytes > limit if ram_bytes is None else host.high_bytes > limit
    reason = host.limit_reason if ram_bytes is None else "--ram"
    actions = tuple(actions_for(estimator, found, limit)) if short else ()
    return HostPlan(host.peak_bytes, host.high_bytes, limit, reason, not short, actions)


def may_fit(plan: HostPlan | None) -> bool:
    """Whether RAM is enough, or would be with something that Legroom does."""
    return plan is None or plan.fits is not False or any(one.fits and one.by == "legroom" for one in plan.actions)


def actions_for(estimator: Estimator, found: Estimate, limit: int) -> Iterator[HostAction]:
    """Each change alone, with what the process takes then; those that would help."""
    observed = estimator.observe()
    plain = found.host
    assert plain is not None

    def action(change: Change, by: Literal["legroom", "author"]) -> HostAction:
        resident = max(0, observed.resident_bytes - change.unmade_bytes)
        estimator.observed = replace(observed, data=change.data, resident_bytes=resident)
        try:
            then = estimator.at(found.batch).host or plain
        finally:
            estimator.observed = observed
        fits = then.high_bytes <= limit
        return HostAction(change.name, change.title, change.how, by, then.peak_bytes, then.high_bytes, fits)

    tried: list[HostAction] = []
    for change in budgeted(observed.data, estimator.source.step.framework):
        tried.append(action(change, "legroom"))
        if tried[-1].fits:
            break
    authors = [action(change, "author") for change in (*author_changes(observed.data), *streams(observed.data))]
    for one in (*tried[-1:], *authors):
        if one.peak_bytes < plain.peak_bytes or one.high_bytes < plain.high_bytes:
            yield one


def budgeted(data: Data, framework: Framework) -> Iterator[Change]:
    """The data within budgets of several sizes, the largest first: what `legroom run --ram` does."""
    for ram_bytes in BUDGETS:
        how = f"legroom run --ram {written(ram_bytes)} train.py, or legroom.fit(model, …, ram={written(ram_bytes)!r})"
        if is_streamed(data):
            yield Change("stream", "arrays read batch by batch, not copied", how, streamed(data, framework, ram_bytes))
        elif data.pipeline is not None:
            yield Change("ram_budget", "tf.data held to a budget", how, streamed(data, framework, ram_bytes))


def streams(data: Data) -> Iterator[Change]:
    """`legroom.stream` of the arrays, instead of a dataset that copies them."""
    size = arrays_behind(data)
    if data.pipeline is None or size < WORTH_IT_BYTES:
        return
    batch_size = next((stage.count for stage in stages_of(data.pipeline.stage) if stage.kind == "batch"), None) or 1
    rows = max(stage.cardinality or 1 for stage in stages_of(data.pipeline.stage) if stage.kept_bytes)
    ram_bytes = max(MIB * 64, 4 * batch_size * size // max(1, rows))
    held = sizes_for(Need(size // max(1, rows), batch_size), ram_bytes, os.cpu_count() or 1).held_bytes
    then = Data(
        "arrays", batch=data.batch, batch_size=batch_size, streamed=Span(held // 4, held, held), epochs=data.epochs
    )
    how = f'legroom.stream((x, y), batch_size={batch_size}, ram="{written(ram_bytes)}") instead of from_tensor_slices; transform= is its map'
    yield Change("stream_source", "a stream of the arrays, not a dataset of copies", how, then, size)


def written(size_bytes: int) -> str:
    """A size as one writes it on a command line."""
    return f"{size_bytes // GIB}GiB" if size_bytes % GIB == 0 else f"{-(-size_bytes // MIB)}MiB"
