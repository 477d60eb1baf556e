"""From the stages of a tf.data pipeline to the bytes that it holds. Pure arithmetic over `Stage` records.

The model is that of tf.data's iterators (tensorflow/core/kernels/data): a stage is asked for an element, asks its input,
and holds what it needs meanwhile. Two sums come out of a stage: its *buffers*, which last (a shuffle's elements, results
of parallel calls, a cache), and its *work*, the most that one call for an element takes on top. Stages with threads of
their own (prefetch, parallel map, batch and interleave) do their input's work while others do theirs, so that it adds up.
"""

from dataclasses import replace

from legroom.engines.host.holdings import FIRST_RUN_BYTES, PREFETCH_AUTOTUNED, Held, Holding, Machine, element_of
from legroom.engines.host.kinds import SAME_ELEMENTS
from legroom.engines.host.sources import constants, hold_source, left_of_copies, numpy_copies
from legroom.engines.host.span import NOTHING, Span, exactly, ordered, total
from legroom.engines.host.stages import AUTOTUNE, INFINITE, Pipeline, Stage

READ_BUFFER_BYTES = 256 * 1024
FUTURE_ITERATORS = 2  # a parallel interleave opens this many times its cycle ahead of it
BLOCKS_AHEAD = 2  # and keeps so many blocks of every open iterator


def limited(stage: Stage, count: int) -> Span:
    """How many elements a buffer for `count` of them will hold: never more than there are."""
    if count == AUTOTUNE:
        count = 1
    if stage.cardinality is None:
        most = count if stage.most is None else min(count, stage.most)
        return Span(0, most, most)
    return exactly(count if stage.cardinality == INFINITE else min(count, stage.cardinality))


def pipeline_holdings(pipeline: Pipeline, machine: Machine, consumer: tuple[float, float, float]) -> Held:
    """All that a pipeline holds while a consumer takes its elements and keeps `consumer` of them at a time."""
    if pipeline.threads:
        machine = replace(machine, cores=pipeline.threads)
    if pipeline.ram_budget_bytes:
        machine = replace(machine, ram_budget_bytes=pipeline.ram_budget_bytes)
    last = pipeline.stage
    if pipeline.autotune and pipeline.optimized and last.kind != "prefetch":
        last = replace(last, kind="prefetch", name="prefetch (added by tf.data)", count=AUTOTUNE, inputs=(last,))
        last = replace(last, parallel=None, constant_bytes=0, inner=None, work=None)
    held = hold(last, pipeline, machine)
    parts = [*held.buffers, *numpy_copies(pipeline)]
    parts.append(Holding("elements being made", held.work, "what the stages work on while they make an element"))
    low, size, high = consumer
    parts.append(
        Holding(
            *("the consumer's batch", element_of(last).times(low, size, high), "held by the step while the next comes"),
            pooled=element_of(last).times(max(0, low - 1), max(0, size - 1), max(0, high - 1)),
        )
    )
    parts.append(Holding("tf.data's first run", FIRST_RUN_BYTES, "threads, arenas and graphs", "kept", pooled=NOTHING))
    parts.extend(left_of_copies(pipeline, parts))
    return Held(tuple(part for part in parts if part.bytes.high), notes=held.notes)


def hold(stage: Stage, pipeline: Pipeline, machine: Machine) -> Held:
    """What a stage holds, with everything before it."""
    befores = [hold(item, pipeline, machine) for item in stage.inputs]
    buffers = tuple(holding for before in befores for holding in before.buffers)
    notes = tuple(note for before in befores for note in before.notes)
    work = total([before.work for before in befores])
    own = hold_one(stage, work, pipeline, machine)
    if stage.kind == "concatenate":
        buffers = joined(befores)
    return Held((*buffers, *constants(stage), *own.buffers), own.work, (*notes, *own.notes))


def joined(befores: list[Held]) -> tuple[Holding, ...]:
    """The inputs of a concatenation run one after the other: what is made with them stays, the fullest one's buffers count."""
    fullest = max(
        befores,
        key=lambda held: sum(item.bytes.size for item in held.buffers if item.phase == "running"),
        default=Held(),
    )
    others = [item for held in befores if held is not fullest for item in held.buffers]
    made = [item for item in others if item.phase != "running" or item.lasting]
    return (*made, *fullest.buffers)


def hold_one(stage: Stage, work: Span, pipeline: Pipeline, machine: Machine) -> Held:
    """What the stage itself adds, and what asking it for an element takes; `work` is what asking its inputs takes."""
    element = element_of(stage)
    match stage.kind:
        case "source":
            return hold_source(stage, pipeline)
        case "generator":
            return Held(work=element * 2)  # the array that Python yields and the tensor made from it
        case "files":
            name, why = f"{stage.name}: read buffers", "what is read from a file at once"
            return Held((Holding(name, exactly(READ_BUFFER_BYTES).times(1, 1, 8), why, pooled=NOTHING),), element)
        case "shuffle" if is_cached(stage):
            return Held(work=work.at_least(element))
        case "shuffle" | "cache":
            return Held((hold_elements(stage, machine),), work.at_least(element), lacking(stage))
        case "prefetch":
            return hold_prefetch(stage, work, machine)
        case "map" | "batch":
            return hold_call(stage, work, pipeline, machine)
        case "interleave":
            return hold_interleave(stage, work, pipeline, machine)
        case "unbatch" | "window":
            return hold_input(stage, work)
        case "unknown":
            note = f"{stage.name} is a stage that Legroom does not know: it is taken to hold 1 element, at most 16."
            return Held((Holding(stage.name, element.times(0, 1, 16), "not known"),), work + element, (note,))
    return Held(work=work if stage.inputs else element)


def is_cached(stage: Stage) -> bool:
    """Whether a stage's elements are the very tensors that a cache before it holds: then keeping them costs nothing."""
    before = stage
    while before.kind in SAME_ELEMENTS and before.inputs:
        before = before.inputs[0]
        if before.kind == "cache":
            return True
    return False


def hold_call(stage: Stage, work: Span, pipeline: Pipeline, machine: Machine) -> Held:
    """A map or a batch: one call for each element, in the caller's thread or several at once."""
    element = element_of(stage)
    before = element_of(stage.inputs[0]) if stage.inputs else NOTHING
    if stage.kind == "batch":
        examples = before * max(1, stage.count or 1)
        if stage.parallel is None:
            return Held(work=(examples + work).at_least(examples + element))
        return hold_calls(stage, stage.parallel, examples, work, machine)
    call = stage.work if stage.work is not None else before + element
    parallel = stage.parallel
    if parallel is None and not stage.stateful and pipeline.autotune and pipeline.optimized:
        parallel = AUTOTUNE  # tf.data's map_parallelization
    if parallel is None:
        return Held(work=work.at_least(call))
    return hold_calls(stage, parallel, call.over(element), work, machine)


def hold_input(stage: Stage, work: Span) -> Held:
    """A batch that is being taken apart, or a window that is being filled."""
    before = element_of(stage.inputs[0]) if stage.inputs else NOTHING
    if stage.kind == "unbatch":
        return Held((Holding(stage.name, before, "the batch that is being taken apart"),), work + element_of(stage))
    return Held((Holding(stage.name, before * max(1, stage.count or 1), f"a window of {stage.count} elements"),), work)


def hold_elements(stage: Stage, machine: Machine) -> Holding:
    """A buffer of elements, `count` of them (a cache: all)."""
    element = element_of(stage)
    before = stage.inputs[0] if stage.inputs else None
    if stage.kind == "shuffle":
        held, why = element * limited(stage, stage.count or 1), f"a buffer of {stage.count} elements"
        if before is not None and before.kind == "batch":
            why += ", each a batch"
    elif stage.cardinality is not None and stage.cardinality != INFINITE:
        held, why = element * stage.cardinality, f"all {stage.cardinality} elements"
    elif stage.most is not None:
        held, why = element * Span(0, stage.most, stage.most), f"all elements, at most {stage.most}"
    else:
        held, why = ordered(0, 0, machine.limit_bytes), "all elements, and nobody knows how many"
    if stage.whole is not None and stage.kind == "cache" and stage.cardinality is None and stage.most is None:
        held, why = stage.whole, "all that is in its files"
    elif stage.whole is not None:
        held = held.at_most(ordered(min(held.low, stage.whole.low), stage.whole.size, max(stage.whole.high, held.low)))
    return Holding(stage.name, held, why, lasting=stage.kind == "cache")


def lacking(stage: Stage) -> tuple[str, ...]:
    """What could not be known about a buffer."""
    if stage.kind == "cache" and stage.cardinality in (None, INFINITE) and stage.most is None and stage.whole is None:
        return (
            f"{stage.name} keeps every element and their number is not known: its upper bound is the machine's whole "
            "limit. dataset.apply(tf.data.experimental.assert_cardinality(n)) before it says how many.",
        )
    if stage.kind == "shuffle" and stage.cardinality is None and stage.whole is None:
        return (f"{stage.name}: the number of elements is not known; taken to fill its buffer.",)
    return ()


def hold_prefetch(stage: Stage, work: Span, machine: Machine) -> Held:
    """A prefetch buffer. Its thread makes an element only when there is room for it, so the last one is still in the making."""
    element = element_of(stage)
    finite = stage.cardinality is not None and stage.cardinality != INFINITE
    if stage.count in (None, AUTOTUNE):
        low, size, high = PREFETCH_AUTOTUNED
        high = max(size, min(high, machine.ram_budget_bytes / max(1, element.high)))
        why = f"prefetch(AUTOTUNE): usually 1 or 2 elements, {high:.0f} when the consumer stutters"
    else:
        low, size, high = 0.0, float(stage.count or 1), float(stage.count or 1)
        why = f"a buffer of {stage.count} elements, full when the step is slower than the pipeline"
    if finite:
        low, size, high = (min(number, float(max(stage.cardinality or 0, 1))) for number in (low, size, high))
    full = element.times(low, size, high)
    making = element.times(max(0.0, low - 1), max(0.0, size - 1), max(0.0, high - 1)) + work
    return Held((Holding(stage.name, full.at_least(making), why),))


def hold_calls(stage: Stage, parallel: int, extra: Span, work: Span, machine: Machine) -> Held:
    """Parallel calls: the results of all of them, `extra` for those that run, and the input's work in their own thread."""
    calls = machine.cores if parallel == AUTOTUNE else parallel
    if stage.cardinality is not None and stage.cardinality != INFINITE:
        calls = max(1, min(calls, stage.cardinality))
    running = min(calls, machine.cores)
    results = element_of(stage) * calls
    waiting = calls > machine.cores  # with more calls than cores most have their result, and wait for the consumer
    inside = extra.times(1, 1 if waiting else running, running)
    why = f"{calls} calls at once" + (" (AUTOTUNE: the number of cores)" if parallel == AUTOTUNE else "")
    least = (element_of(stage) + extra).at_least(work)  # where the input is the slow one, a call at a time
    full = results + inside + work
    return Held((Holding(stage.name, Span(min(least.low, full.low), full.size, full.high), why),))


def hold_interleave(stage: Stage, work: Span, pipeline: Pipeline, machine: Machine) -> Held:
    """Iterators open at once, each with the buffers of its own pipeline; a parallel one opens more, and keeps blocks of each."""
    element = element_of(stage)
    cycle = machine.cores if stage.count in (None, AUTOTUNE) else max(1, stage.count or 1)
    inner = hold(stage.inner, pipeline, machine) if stage.inner is not None else Held(work=element)
    iterators = cycle if stage.parallel is None else cycle * (1 + FUTURE_ITERATORS)
    files = stage.inputs[0].cardinality if stage.inputs else None
    if files is not None and files != INFINITE:
        iterators, cycle = max(1, min(iterators, files)), max(1, min(cycle, files))
    inside = total([holding.bytes for holding in inner.buffers])
    if stage.parallel is None:
        return Held(
            (Holding(stage.name, inside * iterators, f"{iterators} iterators open"),), work + inner.work, inner.notes
        )
    ahead = element * (iterators * BLOCKS_AHEAD * stage.block)
    calls = min(machine.cores if stage.parallel == AUTOTUNE else stage.parallel, machine.cores)
    likely = ahead + inside * iterators + inner.work * max(1, calls)
    if stage.whole is not None:
        likely = likely.at_most(
            ordered(min(likely.low, stage.whole.low), stage.whole.size, max(stage.whole.high, likely.low))
        )
    bounded = Span(min(likely.low, inside.low * cycle), likely.size, likely.high)
    why = f"{iterators} iterators open, {BLOCKS_AHEAD * stage.block} elements ahead in each"
    return Held((Holding(stage.name, bounded, why),), work, inner.notes)
