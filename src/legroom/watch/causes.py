"""From evidence to a cause: what explains the bytes goes before what merely happens often."""

from collections.abc import Iterator

from legroom.units import format_bytes
from legroom.watch.evidence import Cache, Cause, Container, Evidence

OFTEN = 0.1  # times a step that make a habit
EXPLAINS = 0.4  # share of the slope that a container must account for
ADVICE = {
    "retracing": "Pass what changes as a tensor (tf.constant, jnp.asarray) or give the function an input_signature; pad or bucket changing shapes.",
    "anew": "Create the tf.function once, outside of the loop.",
    "collected": "Keep numbers, not tensors (float(loss), array.copy()), a bounded deque, or a metric that is reset.",
    "rebuilt": "Build the model once outside of the loop, or call keras.utils.clear_session() before each new one.",
    "predict": "In a loop call model(x, training=False) or model.predict_on_batch(x); predict() is for many batches at once.",
    "unknown": "Look at what grows beside the step: callbacks, logging, and what is kept from one step to the next.",
}


def find_cause(evidence: Evidence, slope_bytes: float) -> Cause:
    """The likeliest cause of a growth of that many bytes per step."""
    return next(candidates(evidence, slope_bytes), unknown(evidence))


def candidates(evidence: Evidence, slope_bytes: float) -> Iterator[Cause]:
    """All causes that the evidence speaks for, the strongest first."""
    steps = max(evidence.steps, 1)
    heavy = [found for found in evidence.containers if weight(found, steps) >= EXPLAINS * slope_bytes]
    heavy.sort(key=lambda found: -weight(found, steps))
    yield from (filling_buffer(found) for found in heavy if found.limit is not None and found.element != "models")
    fills = [cache for cache in evidence.caches if left(cache, evidence.at_step) != 0]
    explained = [cache for cache in fills if share(cache) >= EXPLAINS * slope_bytes]
    yield from (filling_cache(cache, evidence.at_step) for cache in explained)
    yield from (collected(found, steps) for found in heavy if found.element != "models" and found.element_bytes > 0)
    built = [(name, count) for name, count in evidence.built if count >= OFTEN * steps]
    if built or any(found.element == "models" for found in evidence.containers):
        yield rebuilt(evidence, built, steps)
    for traced in evidence.retraced:
        if traced.traces >= max(OFTEN * steps, 3):
            why = f": {'; '.join(traced.changed)}" if traced.changed else ""
            text = f"{traced.name} was traced {traced.traces} times in {steps} steps{why}."
            yield Cause("retracing", text, ADVICE["retracing"])
    if evidence.predicts >= OFTEN * steps:
        text = f"predict() was called {evidence.predicts} times in {steps} steps: each call builds a data pipeline of its own."
        yield Cause("predict", text, ADVICE["predict"])
    for traced in evidence.anew:
        if traced.traces >= max(OFTEN * steps, 3):
            text = f"{traced.name} was made into a compiled function {traced.traces} times in {steps} steps, and each was traced."
            yield Cause("retracing", text, ADVICE["anew"])
    many = [found for found in evidence.containers if found.element == "tensors" and found.grown >= OFTEN * steps]
    yield from (collected(found, steps) for found in sorted(many, key=lambda found: -found.grown))
    yield from (filling_cache(cache, evidence.at_step) for cache in fills if cache.element_bytes is None)


def weight(found: Container, steps: int) -> float:
    return found.grown * found.element_bytes / steps


def share(cache: Cache) -> float:
    """Bytes that a step puts into a cache."""
    return cache.per_step * (cache.element_bytes or 0)


def left(cache: Cache, step: int) -> int | None:
    """Elements that a cache has still to take, None where nobody knows."""
    return None if cache.elements is None else max(cache.elements - cache.per_step * step, 0)


def filling_cache(cache: Cache, step: int) -> Cause:
    rest = left(cache, step)
    if rest is None:
        return Cause("filling", "a tf.data cache() in RAM is filling up; how large it will be is not known.")
    size = None if cache.element_bytes is None else rest * cache.element_bytes
    much = "" if size is None else f", {format_bytes(size)}"
    text = f"a tf.data cache() in RAM is filling up: {rest} of its {cache.elements} elements{much} are to come."
    return Cause("filling", text, left_bytes=size)


def filling_buffer(found: Container) -> Cause:
    rest = max((found.limit or 0) - found.size, 0)
    size = rest * found.element_bytes
    text = (
        f"{found.name}, a deque with room for {found.limit}, is filling up: {rest} more elements, {format_bytes(size)}."
    )
    return Cause("filling", text, left_bytes=size)


def collected(found: Container, steps: int) -> Cause:
    text = (
        f"{found.name}, a {found.kind} of {found.size} {found.element}, grew by {found.grown} in {steps} steps, "
        f"{format_bytes(found.element_bytes)} each."
    )
    return Cause("collected", text, ADVICE["collected"])


def rebuilt(evidence: Evidence, built: list[tuple[str, int]], steps: int) -> Cause:
    kept = [found for found in evidence.containers if found.element == "models"]
    words = [f"{count} × {name}" for name, count in built[:4]]
    text = f"Keras objects were built in {steps} steps: {', '.join(words)}." if words else "Models are kept."
    if kept:
        text += f" {kept[0].name} keeps {kept[0].size} models."
    return Cause("rebuilt", text, ADVICE["rebuilt"])


def unknown(evidence: Evidence) -> Cause:
    kinds = ", ".join(f"{count} × {name}" for name, count in evidence.kinds[:3])
    text = f"no usual cause was found; most new objects: {kinds}." if kinds else "no usual cause was found."
    return Cause("unknown", text, ADVICE["unknown"])
