"""Arrays behind a pipeline: the tensors made of them, and the copies on the way.

An array given to from_tensor_slices is copied by NumPy, then into a tensor; TensorFlow lets go of NumPy's copy late. When
an iterator starts, tf.data rewrites the pipeline and copies the tensors once more, into the pool of its CPU allocator, where
the place stays resident. An array that a function closes over is written into its graph, which is copied many times.
"""

from collections.abc import Iterator

from legroom.engines.host.holdings import Held, Holding, element_of
from legroom.engines.host.span import NOTHING, Span, exactly
from legroom.engines.host.stages import Pipeline, Stage

CONSTANT_KEPT, CONSTANT_START = (4.0, 6.0, 8.0), (2.0, 9.0, 10.0)  # a captured array inside a function's graph
REGION_BYTES = 2**20  # TensorFlow's CPU pool (BFC, under oneDNN) grows by regions of this size times powers of two
POOL_SPREAD = 1.5  # how far a pipeline spreads over such a region for what it holds


def stages_of(stage: Stage) -> Iterator[Stage]:
    """A stage and all before it."""
    yield stage
    for item in stage.inputs:
        yield from stages_of(item)


def numpy_copies(pipeline: Pipeline) -> tuple[Holding, ...]:
    """NumPy's copy of the source arrays, which TensorFlow lets go of late: at the first element, or when a shuffle is made."""
    stages = list(stages_of(pipeline.stage))
    kept_bytes = sum(stage.kept_bytes for stage in stages if not stage.given)
    early = any(stage.kind in ("shuffle", "cache") for stage in stages)
    if not kept_bytes or (early and pipeline.optimized):
        return ()
    why = "NumPy's copy on the way into a tensor, let go at the first element (none if given tensors)"
    size = Span(0, kept_bytes, kept_bytes)
    return (Holding("arrays on their way into tensors", size, why, "start", before_fit=True),)


def left_of_copies(pipeline: Pipeline, parts: list[Holding]) -> tuple[Holding, ...]:
    """What stays resident of the copy made at the start, beyond what the running pipeline uses of its place.

    TensorFlow's CPU pool keeps the region that it took for the copy; a pipeline that then lives there spreads over more of
    it than it holds, up to the region's end.
    """
    size = sum(stage.kept_bytes for stage in stages_of(pipeline.stage))
    if not pipeline.optimized or not size:
        return ()
    region = REGION_BYTES
    while region < size:
        region *= 2
    running = sum(part.bytes.size for part in parts if part.phase == "running")
    left = max(size, min(region, int(POOL_SPREAD * running))) - running
    why = "the place of the copy made at the start: freed, but still resident in TensorFlow's pool"
    return (Holding("left of the copy", Span(0, max(0, left), region), why, pooled=NOTHING),)


def hold_source(stage: Stage, pipeline: Pipeline) -> Held:
    """Arrays behind from_tensor_slices: NumPy copies them, TensorFlow copies that; a starting iterator copies once more."""
    size = exactly(stage.kept_bytes)
    why = "tensors of the script's own" if stage.given else "the arrays as tensors, kept as long as the dataset is"
    parts = [Holding(stage.name, size, why, "own" if stage.given else "made")]
    if pipeline.optimized:
        why = "copied when an iterator starts; less if the pool has room from earlier tensors"
        parts.append(Holding(f"{stage.name}: copied at the start", size.times(0, 1, 1), why, "start"))
    return Held(tuple(part for part in parts if part.bytes.high), element_of(stage))


def constants(stage: Stage) -> tuple[Holding, ...]:
    if not stage.constant_bytes:
        return ()
    size = exactly(stage.constant_bytes)
    why = "an array used inside the function is written into its graph, which is copied many times: pass it as a tensor"
    return (
        Holding(f"{stage.name}: captured arrays", size.times(*CONSTANT_KEPT), why, "made", pooled=size),
        Holding(f"{stage.name}: captured arrays, copied", size.times(*CONSTANT_START), why, "start"),
    )
