"""What the author of a tf.data pipeline may change about it, as the pipeline would then be. Pure, over `Stage` records."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from legroom.engines.host.pipeline import is_cached
from legroom.engines.host.sources import stages_of
from legroom.engines.host.stages import Data, Stage

FEWER = 10  # a shuffle buffer that is too large, divided by this


@dataclass(frozen=True, slots=True)
class Change:
    """A change in the script: the data after it, and what of the process would not have been made."""

    name: str
    title: str
    how: str
    data: Data
    unmade_bytes: int = 0


def author_changes(data: Data) -> Iterator[Change]:
    """Every change that could help, the quickest to make first."""
    if data.pipeline is None:
        return
    for stage in stages_of(data.pipeline.stage):
        before = stage.inputs[0] if stage.inputs else None
        if stage.kind == "cache" and before is not None:
            how = f"leave {stage.name} out, or cache to a file: .cache(filename)"
            yield Change("no_cache", "without the cache", how, with_stage(data, stage, before))
        elif stage.kind != "shuffle" or before is None or is_cached(stage):
            continue
        elif before.kind == "batch" and before.inputs:
            how = (
                f"shuffle({stage.count}).batch({before.count}) instead of batch({before.count}).shuffle({stage.count})"
            )
            swapped = with_stage(data, stage, shuffled_first(stage, before))
            yield Change("shuffle_first", "samples shuffled, not batches", how, swapped)
        elif (stage.count or 0) > FEWER:
            fewer = (stage.count or 0) // FEWER
            how = f"shuffle({fewer}) instead of shuffle({stage.count}); legroom.stream shuffles all samples without a buffer"
            smaller = with_stage(data, stage, replace(stage, count=fewer))
            yield Change("smaller_buffer", "a smaller shuffle buffer", how, smaller)


def shuffled_first(shuffle: Stage, batch: Stage) -> Stage:
    """`shuffle(n).batch(b)` of `batch(b).shuffle(n)`."""
    sample = batch.inputs[0]
    first = replace(
        shuffle,
        element=sample.element,
        components=sample.components,
        cardinality=sample.cardinality,
        most=sample.most,
        whole=sample.whole,
        aliased_bytes=sample.aliased_bytes,
        inputs=(sample,),
    )
    return replace(batch, inputs=(first,))


def with_stage(data: Data, old: Stage, new: Stage) -> Data:
    """The data with one stage of its pipeline replaced."""
    assert data.pipeline is not None
    return replace(data, pipeline=replace(data.pipeline, stage=put(data.pipeline.stage, old, new)))


def put(stage: Stage, old: Stage, new: Stage) -> Stage:
    if stage is old:
        return new
    return replace(stage, inputs=tuple(put(item, old, new) for item in stage.inputs))


def arrays_behind(data: Data) -> int:
    """Bytes of the arrays that a pipeline was made from, and holds as tensors."""
    stages = [] if data.pipeline is None else list(stages_of(data.pipeline.stage))
    return sum(stage.kept_bytes for stage in stages if not stage.given)
