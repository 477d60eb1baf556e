"""A training's data as it is under `legroom run --ram` and `legroom.fit(ram=…)`: arrays read batch by batch, tf.data with a budget."""

from dataclasses import replace

from legroom.data.sizing import IN_USE, array_sizes
from legroom.engines.host.arrays import CONSUMED
from legroom.engines.host.observe import Observed
from legroom.engines.host.span import Span, exactly
from legroom.engines.host.stages import Data
from legroom.records import Framework
from legroom.units import MIB

WORTH_IT_BYTES = 16 * MIB  # as in legroom.data.unmodified
STREAMED = ("numpy", "memmap")
# Bytes of a row while the order of all rows is made. TensorFlow writes a range of up to 10 MiB into the graph, and copies it there.
ORDER, SHORT_ORDER, SHORT_BYTES = (12, 16, 32), (12, 60, 100), 10 * MIB


def observed_streamed(observed: Observed, framework: Framework, ram_bytes: int | None) -> Observed:
    return observed if ram_bytes is None else replace(observed, data=streamed(observed.data, framework, ram_bytes))


def streamed(data: Data, framework: Framework, ram_bytes: int) -> Data:
    """The same data, read within so many bytes."""
    if data.validation is not None:
        data = replace(data, validation=streamed(data.validation, framework, ram_bytes))
    if data.pipeline is not None:
        return replace(data, pipeline=replace(data.pipeline, ram_budget_bytes=ram_bytes))
    return replace(data, streamed=reading(data, framework, ram_bytes)) if is_streamed(data) else data


def is_streamed(data: Data) -> bool:
    size = sum(facts.size_bytes for facts in data.arrays)
    return data.kind == "arrays" and size >= WORTH_IT_BYTES and all(facts.kind in STREAMED for facts in data.arrays)


def reading(data: Data, framework: Framework, ram_bytes: int) -> Span:
    """What reading holds: batches in groups, and the order."""
    rows = max((facts.rows for facts in data.arrays), default=1)
    row = sum(max(facts.size_bytes, facts.standard_bytes) // max(1, facts.rows) for facts in data.arrays)
    if framework == "jax":
        return exactly(row * data.batch_size).times(*CONSUMED["jax"]) + exactly(16 * rows)
    sizes = array_sizes(row, rows, data.batch_size, ram_bytes)
    most = sizes.group * (sizes.threads + sizes.ahead + IN_USE)
    order = exactly(rows).times(*(SHORT_ORDER if 8 * rows <= SHORT_BYTES else ORDER))
    return exactly(row * data.batch_size).times(1, most, most) + order
