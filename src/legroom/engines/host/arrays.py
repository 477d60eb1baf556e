"""Arrays, generators and PyDatasets given to `fit`: what Keras makes of them in RAM. Pure, over their description.

Keras 3.15's data adapters (keras/src/trainers/data_adapters): on TensorFlow an array becomes a tensor, by way of a NumPy
copy that is let go at the first batch, and of a converted one if its floats are not the default ones; a batch is gathered
by parallel calls and prefetched. On JAX batches are sliced from the array itself, and two more are sent ahead.
"""

from dataclasses import replace

from legroom.engines.host.holdings import FIRST_RUN_BYTES, PREFETCH_AUTOTUNED, Holding
from legroom.engines.host.span import NOTHING, Span, exactly
from legroom.engines.host.stages import ArrayFacts, Data
from legroom.records import Framework

CONSUMED: dict[Framework, tuple[float, float, float]] = {"tensorflow": (1, 1, 2), "jax": (3, 7, 34)}
JAX_AHEAD = (3, 14, 34)  # JAX takes steps before they are done, up to 32 of them: a quick generator runs ahead
PEEKED_BATCHES = 2  # Keras reads so many of a generator to learn their shapes, and keeps them
WORKER_BYTES = Span(5_000_000, 40_000_000, 120_000_000)  # what a forked worker process comes to own


def own_arrays(arrays: tuple[ArrayFacts, ...], name: str) -> list[Holding]:
    """The script's arrays themselves: there before training."""
    plain = sum(facts.size_bytes for facts in arrays if facts.kind != "memmap")
    mapped = sum(facts.size_bytes for facts in arrays if facts.kind == "memmap")
    found = []
    if plain:
        found.append(
            Holding(name, exactly(plain), "the script's own arrays, alive while it trains", "own", pooled=NOTHING)
        )
    if mapped:
        why = "pages of the mapped file that were read: counted as resident, given back when memory is short"
        found.append(Holding(f"{name} (mapped)", Span(0, mapped, mapped), why, "kept", pooled=NOTHING))
    return found


def array_holdings(data: Data, framework: Framework, cores: int) -> list[Holding]:
    """What `fit(arrays)` adds on its way to the batches."""
    share = 1.0 - (0.0 if data.validation is not None else data.validation_split)
    found = copies(data.arrays, framework, share, "training arrays")
    found.append(Holding("fit's first run", FIRST_RUN_BYTES, "threads, arenas and graphs", "kept", pooled=NOTHING))
    if share < 1.0:
        found += [late(item) for item in copies(data.arrays, framework, 1.0 - share, "validation arrays")]
    if framework == "jax":
        why = "batches sliced, sent ahead and on the device (Keras keeps two ahead)"
        found.append(Holding("batches under way", data.batch.times(*CONSUMED["jax"]), why))
        return found
    low, size, high = PREFETCH_AUTOTUNED
    batches = data.batch.times(1 + low, cores + size + 1, cores + high + 1)
    why = f"{cores} gathered at once (AUTOTUNE: the number of cores), prefetched, and in the step"
    found.append(Holding("batches under way", batches, why, pooled=batches.over(data.batch)))
    return found


def streamed_holdings(data: Data) -> list[Holding]:
    """Arrays that are read batch by batch instead of being copied; mapped ones are read from their file."""
    why = "rows read ahead, and the order of an epoch; the arrays are not copied"
    plain = tuple(facts for facts in data.arrays if facts.kind != "memmap")
    return [
        *own_arrays(plain, "arrays"),
        Holding("batches read on demand", data.streamed or NOTHING, why, pooled=NOTHING),
        Holding("fit's first run", FIRST_RUN_BYTES, "threads, arenas and graphs", "kept", pooled=NOTHING),
    ]


def copies(arrays: tuple[ArrayFacts, ...], framework: Framework, share: float, name: str) -> list[Holding]:
    """The copies that Keras' adapter makes of `share` of the rows."""
    numpy = [facts for facts in arrays if facts.kind != "tensor"]
    changed = sum(
        int(facts.standard_bytes * share)
        for facts in numpy
        if facts.standard_bytes != facts.size_bytes or facts.kind == "list"
    )
    whole = sum(int(facts.standard_bytes * share) for facts in numpy)
    if framework == "jax":
        found = [
            Holding(f"{name}, converted", exactly(changed), "floats made the default ones", "kept"),
            Holding(f"{name}, while converted", Span(0, changed, changed), "a copy made on the way", "start"),
        ]
    else:
        found = [
            Holding(f"{name} as tensors", exactly(whole), "fit() makes a tensor of every array", "kept"),
            Holding(f"{name} on their way", exactly(whole), "NumPy's copy, let go at the first batch", "start"),
            Holding(f"{name}, converted", Span(0, changed, changed), "floats made the default ones", "start"),
        ]
    return [item for item in found if item.bytes.high]


def late(item: Holding) -> Holding:
    """Validation is set up after an epoch: all it takes comes on top of the running training, not of its start."""
    return replace(item, phase=item.phase if item.phase in ("own", "made") else "running")


def generator_holdings(data: Data, framework: Framework) -> list[Holding]:
    """Python generators and loaders: the array yielded, its tensor, two that Keras keeps, and what the step has."""
    found = [
        Holding("first batches", data.batch * PEEKED_BATCHES, "Keras reads two and keeps them", "kept", pooled=NOTHING)
    ]
    return found + consumed(data, framework)


def consumed(data: Data, framework: Framework) -> list[Holding]:
    """The batch that Python makes, its tensor, those prefetched, and the step's."""
    if framework == "jax":
        batches = data.batch.times(*JAX_AHEAD)
    else:
        _, size, high = PREFETCH_AUTOTUNED
        batches = data.batch.times(2, 2 + size, 2 + high)
    why = "made by Python, turned into tensors, held by the step"
    return [Holding("batches under way", batches, why, pooled=batches.over(data.batch * 2))]


def dataset_holdings(data: Data, framework: Framework) -> tuple[list[Holding], tuple[str, ...]]:
    """A keras.utils.PyDataset: a queue of batches that worker threads or processes keep full."""
    if data.workers <= 1 and not data.multiprocessing:
        return consumed(data, framework), ()
    limit = data.batches if data.batches else data.queue + data.workers
    queued = min(data.queue + data.workers, limit)
    found = [
        Holding(
            "queue of batches",
            data.batch.times(min(data.workers, limit), queued, queued + 1),
            f"max_queue_size {data.queue} and {data.workers} workers, one batch each",
            pooled=NOTHING,
        ),
        *consumed(data, framework),
    ]
    if not data.multiprocessing:
        return found, ()
    why = f"{data.workers} worker processes beside this one: their own batch and what they write to"
    found.append(Holding("worker processes", (WORKER_BYTES + data.batch) * data.workers, why, pooled=NOTHING))
    note = (
        "use_multiprocessing: the workers share this process's memory only until they write to it; Python's reference counts "
        "are writes, so lists of Python objects get copied."
    )
    return found, (note,)
