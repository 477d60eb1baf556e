"""A tf.data pipeline within a budget: its autotuning is told how much RAM it may spend, and what else it holds is said.

What its author alone may change (a shuffle of whole batches, a buffer that is too large, a cache) is left as it is.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

from legroom.engines.host.describe import describe_dataset
from legroom.engines.host.holdings import Machine, element_of
from legroom.engines.host.pipeline import hold_elements, is_cached
from legroom.engines.host.stages import Stage
from legroom.units import format_bytes

LARGE_SHARE = 2  # buffers above the budget divided by this are spoken of


def budgeted(dataset: Any, budget_bytes: int, batch_size: int | None, verbose: bool) -> Any:
    """The dataset with its budget set; unbatched ones are batched."""
    if verbose:
        for line in costs(dataset, budget_bytes):
            print(f"legroom: {line}", file=sys.stderr)
    made = dataset
    if batch_size is not None and not has_batches(dataset):
        made = made.batch(batch_size).prefetch(1)
    return with_budget(made, budget_bytes)


def with_budget(dataset: Any, budget_bytes: int) -> Any:
    """The same elements; what autotuning adds to it (prefetching, parallel calls) stays within the budget."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = True
    options.autotune.ram_budget = budget_bytes
    return dataset.with_options(options)


def has_batches(dataset: Any) -> bool:
    pipeline = describe_dataset(dataset, False).pipeline
    return pipeline is not None and any(stage.kind == "batch" for stage in stages(pipeline.stage))


def costs(dataset: Any, budget_bytes: int) -> list[str]:
    """What of the pipeline holds so much that its author should know, with the bytes."""
    pipeline = describe_dataset(dataset, False).pipeline
    if pipeline is None:
        return []
    machine = Machine(os.cpu_count() or 1, budget_bytes, budget_bytes)
    found = []
    for stage in stages(pipeline.stage):
        if stage.kind not in {"shuffle", "cache"} or (stage.kind == "shuffle" and is_cached(stage)):
            continue
        held = int(hold_elements(stage, machine).bytes.size)
        before = stage.inputs[0] if stage.inputs else None
        if stage.kind == "shuffle" and before is not None and before.kind == "batch":
            single = int(element_of(before.inputs[0]).size) * (stage.count or 1) if before.inputs else 0
            found.append(
                f"batch({before.count}).shuffle({stage.count}) holds {stage.count:,} batches, {format_bytes(held)}, and only"
                f" shuffles batches; shuffle({stage.count}).batch({before.count}) holds {format_bytes(single)}."
            )
        elif stage.kind == "cache" and (held > budget_bytes // LARGE_SHARE or not held):
            much = format_bytes(held) if held else "every element, and nobody knows how many"
            found.append(f"{stage.name} keeps {much} in RAM; cache(filename) keeps it on disk.")
        elif stage.kind == "shuffle" and held > budget_bytes // LARGE_SHARE:
            found.append(
                f"{stage.name} holds {format_bytes(held)} of a budget of {format_bytes(budget_bytes)}; legroom.stream shuffles"
                " all samples by index, without a buffer."
            )
    return found


def stages(stage: Stage) -> Iterator[Stage]:
    yield stage
    for before in stage.inputs:
        yield from stages(before)
