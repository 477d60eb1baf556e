"""The same data at another batch size: what comes out of the last batching is scaled, what goes into it stays."""

from dataclasses import replace

from legroom.engines.host.stages import Data, Stage


def resized(data: Data, ratio: float) -> Data:
    """The data with batches `ratio` times as large."""
    if ratio == 1:
        return data
    pipeline = data.pipeline
    return replace(
        data,
        batch=data.batch * ratio,
        batch_size=max(1, round(data.batch_size * ratio)),
        pipeline=None if pipeline is None else replace(pipeline, stage=with_larger_batches(pipeline.stage, ratio)),
    )


def with_larger_batches(stage: Stage, ratio: float) -> Stage:
    """The stages from the last batching on; all of a pipeline that has none, for then its source yields batches."""
    is_batching = stage.kind == "batch"
    after = replace(
        stage,
        element=stage.element * ratio,
        aliased_bytes=int(stage.aliased_bytes * ratio),
        work=None if stage.work is None else stage.work * ratio,
        count=round(stage.count * ratio) if is_batching and stage.count else stage.count,
        inputs=stage.inputs if is_batching else tuple(with_larger_batches(item, ratio) for item in stage.inputs),
    )
    if after.cardinality is None or after.cardinality < 0 or stage.kind == "source":
        return after
    return replace(after, cardinality=max(1, round(after.cardinality / ratio)))
