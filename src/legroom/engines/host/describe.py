"""What a call of `fit` was given, described for the host: from live objects to `Data`, which another process can read.

Nothing of the data is copied, and nothing of it is run unless `may_sample` allows a few elements to be made where sizes are
not known otherwise. Whatever cannot be read becomes a note and wider bounds, never an error: the estimate goes on.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from legroom.capture.batch import DEFAULT_BATCH
from legroom.capture.keras_data import is_array_tree, is_dataset
from legroom.capture.placement import is_kept_on_cpu
from legroom.engines.host.elements import size_of_spec
from legroom.engines.host.span import NOTHING, Span, exactly
from legroom.engines.host.stages import ArrayFacts, Data, Pipeline, Stage
from legroom.engines.host.tfdata import ON_HOST, read_pipeline
from legroom.errors import InputError

UNKNOWN_BATCH = Span(0, 0, 0)


def describe(x: Any, y: Any = None, *, may_sample: bool = False, beside: Any = None, **fit: Any) -> Data:
    """The data of `fit(x, y, **fit)`; `beside` names arrays that stay alive though they are not given to fit."""
    data = describe_input(x, y, fit, may_sample)
    validation = fit.get("validation_data")
    if validation is not None:
        data = with_validation(data, validation, fit, may_sample)
    data = with_changes(data, epochs=fit.get("epochs"))
    return with_changes(data, kept_arrays=tuple(facts_of(beside))) if beside is not None else data


def describe_input(x: Any, y: Any, fit: Mapping[str, Any], may_sample: bool) -> Data:
    if x is None:
        return Data("none", notes=("fit() was given no data.",))
    if is_dataset(x):
        return describe_dataset(x, may_sample)
    if is_pydataset(x):
        return describe_pydataset(x, may_sample)
    if is_array_tree(x):
        return describe_arrays((x, y, fit.get("sample_weight")), fit)
    return describe_generator(x, may_sample)


def with_changes(data: Data, **changes: Any) -> Data:
    from dataclasses import replace

    return replace(data, **changes)


def with_validation(data: Data, given: Any, fit: Mapping[str, Any], may_sample: bool) -> Data:
    pair = given if isinstance(given, tuple) and not is_dataset(given) else (given, None)
    settings = {"batch_size": fit.get("validation_batch_size") or fit.get("batch_size")}
    x, y = (*pair, None)[:2]
    return with_changes(data, validation=describe_input(x, y, settings, may_sample))


def describe_dataset(dataset: Any, may_sample: bool) -> Data:
    """A tf.data pipeline; one that is distributed over devices is described by what it yields."""
    try:
        pipeline, notes = read_pipeline(dataset, may_sample)
    except Exception as error:  # noqa: BLE001 — private attributes of another TensorFlow: say so and go on with its elements
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        element, components, _ = size_of_spec(getattr(dataset, "element_spec", ()), None)
        stage = Stage("unknown", type(dataset).__name__, element, components)
        note = (
            f"The pipeline behind {type(dataset).__name__} could not be read ({reason}); only its elements are counted."
        )
        return Data("dataset", Pipeline(stage), batch=element, notes=(note,))
    return Data("dataset", pipeline, batch=pipeline.stage.element, notes=notes)


def describe_arrays(parts: tuple[Any, ...], fit: Mapping[str, Any]) -> Data:
    arrays = tuple(facts for part in parts for facts in facts_of(part))
    rows = max((facts.rows for facts in arrays), default=0)
    steps = fit.get("steps_per_epoch")
    asked = fit.get("batch_size") or (-(-rows // int(steps)) if steps and rows else DEFAULT_BATCH)
    batch_size = min(int(asked), max(1, rows))
    batch = sum(facts.standard_bytes * batch_size // max(1, facts.rows) for facts in arrays)
    split = float(fit.get("validation_split") or 0.0)
    notes: tuple[str, ...] = ()
    if any(facts.kind == "memmap" for facts in arrays):
        notes = (
            "A memory-mapped array costs no RAM by itself, but fit() on TensorFlow copies all of it into a tensor.",
        )
    return Data(
        "arrays", arrays=arrays, batch=exactly(batch), batch_size=batch_size, validation_split=split, notes=notes
    )


def facts_of(tree: Any) -> Iterator[ArrayFacts]:
    """The arrays of a tree, by kind and size."""
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from facts_of(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from facts_of(value)
    elif tree is not None:
        facts = facts_of_array(tree)
        if facts is not None:
            yield facts


def facts_of_array(value: Any) -> ArrayFacts | None:
    shape = getattr(value, "shape", None)
    if shape is None:
        return None
    sizes = [int(size or 0) for size in shape]
    count = 1
    for size in sizes:
        count *= size
    dtype = getattr(value, "dtype", None)
    module = type(value).__module__.split(".")[0]
    name = str(getattr(dtype, "name", None) or dtype or "float64").removeprefix("torch.")
    width = int(getattr(dtype, "itemsize", 0) or getattr(dtype, "size", 0) or 8)
    standard = floatx_bytes() if name.startswith(("float", "bfloat")) else width
    kind: Any = "numpy"
    if module in ("tensorflow", "jax", "jaxlib"):
        kind, standard = "tensor", width
    elif module != "numpy":
        kind = "list"  # pandas and the like: made into an array first
    elif is_mapped(value):
        kind = "memmap"
    on_host = name in (*ON_HOST, "object", "bytes") or name.startswith("str") or is_kept_on_cpu(value)
    return ArrayFacts(kind, count * width, count * standard, sizes[0] if sizes else 1, on_host)


def is_mapped(array: Any) -> bool:
    """Whether an array, or what it is a view of, is a mapped file."""
    while array is not None:
        if type(array).__name__ in ("memmap", "mmap"):
            return True
        array = getattr(array, "base", None)
    return False


def floatx_bytes() -> int:
    import keras

    return {"float16": 2, "bfloat16": 2, "float32": 4}.get(keras.config.floatx(), 8)


def is_pydataset(x: Any) -> bool:
    return any(cls.__name__ == "PyDataset" for cls in type(x).__mro__)


def describe_pydataset(dataset: Any, may_sample: bool) -> Data:
    count = None
    batch, notes = UNKNOWN_BATCH, [no_batch("PyDataset")]
    try:
        count = dataset.num_batches
        if may_sample:
            batch, notes = size_of_batch(dataset[0]), []
    except Exception as error:  # noqa: BLE001 — the user's own code runs here
        notes = [f"{type(dataset).__name__}: a batch could not be read ({type(error).__name__}: {error})."]
    return Data(
        "pydataset",
        batch=batch,
        workers=int(getattr(dataset, "workers", 1) or 0),
        queue=int(getattr(dataset, "max_queue_size", 10) or 0),
        batches=None if count is None else int(count),
        multiprocessing=bool(getattr(dataset, "use_multiprocessing", False)),
        notes=tuple(notes),
    )


def describe_generator(x: Any, may_sample: bool) -> Data:
    """A generator or a loader. Reading a batch of it takes that batch away, which `may_sample` must allow."""
    batch, notes = UNKNOWN_BATCH, [no_batch(type(x).__name__)]
    if may_sample:
        try:
            batch, notes = size_of_batch(next(iter(x))), []
        except StopIteration:
            notes = ["The generator yields nothing."]
        except Exception as error:  # noqa: BLE001 — the user's own code runs here
            notes = [f"{type(x).__name__}: a batch could not be read ({type(error).__name__}: {error})."]
    return Data("generator", batch=batch, notes=tuple(notes))


def no_batch(name: str) -> str:
    return f"{name}: the size of a batch is not known before one is made; nothing is counted for it."


def size_of_batch(value: Any) -> Span:
    """A real batch; others may be smaller (the last one), and twice as large where lengths vary."""
    size = sum(facts.size_bytes for facts in facts_of(value))
    if not size and value is not None and not isinstance(value, str):
        raise InputError(f"a batch of {type(value).__name__} has no arrays in it")
    return Span(0, size, size) if size else NOTHING
