"""What is known of the data that a training gets, as plain records: made from live objects in one process, read in another."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from legroom.engines.host.span import NOTHING, Span

AUTOTUNE = -1
INFINITE = -1
ArrayKind = Literal["numpy", "memmap", "tensor", "list"]
DataKind = Literal["none", "dataset", "arrays", "generator", "pydataset"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a tf.data pipeline.

    `count` is what the stage is named after: elements of a shuffle or prefetch buffer, examples of a batch, iterators of an
    interleave, size of a window. `parallel` is None where the stage works in its caller's thread. `work` is what one call
    of its function holds at its fullest, inputs and outputs included. `most` bounds an unknown cardinality, `whole` all the
    elements together, `aliased_bytes` is what of an element is a view of a source,
    `given` that a source was given tensors that the script keeps, `device_bytes` what of a source's tensors TensorFlow puts
    on the device that it trains on.
    """

    kind: str
    name: str
    element: Span = NOTHING
    components: int = 1
    cardinality: int | None = None
    most: int | None = None
    count: int | None = None
    parallel: int | None = None
    block: int = 1
    kept_bytes: int = 0
    given: bool = False
    device_bytes: int = 0
    aliased_bytes: int = 0
    constant_bytes: int = 0
    work: Span | None = None
    stateful: bool = False
    whole: Span | None = None
    inner: "Stage | None" = None
    inputs: tuple["Stage", ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A tf.data pipeline with the options that change what it holds."""

    stage: Stage
    optimized: bool = True
    autotune: bool = True
    threads: int | None = None
    ram_budget_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """An array given to `fit`: its bytes, its bytes once Keras has made its floats the default ones, and whether TensorFlow
    keeps it on the host (int32 and strings) when it makes a tensor of it.
    """

    kind: ArrayKind
    size_bytes: int
    standard_bytes: int
    rows: int
    on_host: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """Everything that `fit` was given, described: what is asked of the host, without the data itself.

    `tensors` are those that the script holds beside what is trained on. `epochs` is None where nobody knows. `streamed` is what
    reading arrays batch by batch holds (`legroom.data`), where they are not copied.
    """

    kind: DataKind
    pipeline: Pipeline | None = None
    arrays: tuple[ArrayFacts, ...] = ()
    batch: Span = NOTHING
    batch_size: int = 32
    workers: int = 1
    queue: int = 0
    batches: int | None = None
    multiprocessing: bool = False
    validation_split: float = 0.0
    validation: "Data | None" = None
    kept_arrays: tuple[ArrayFacts, ...] = ()
    tensors: tuple[ArrayFacts, ...] = ()
    epochs: int | None = None
    streamed: Span | None = None
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def span_from(value: dict[str, int] | None) -> Span | None:
    return None if value is None else Span(**value)


def stage_from(value: dict[str, Any]) -> Stage:
    inner = value.get("inner")
    return Stage(
        **{
            **value,
            "element": Span(**value["element"]),
            "work": span_from(value.get("work")),
            "whole": span_from(value.get("whole")),
            "inner": None if inner is None else stage_from(inner),
            "inputs": tuple(stage_from(item) for item in value.get("inputs", ())),
        }
    )


def data_from(value: dict[str, Any]) -> Data:
    """The description from its `as_dict`, or from the JSON of that."""
    pipeline, validation = value.get("pipeline"), value.get("validation")
    return Data(
        **{
            **value,
            "pipeline": None if pipeline is None else Pipeline(**{**pipeline, "stage": stage_from(pipeline["stage"])}),
            "validation": None if validation is None else data_from(validation),
            "batch": Span(**value["batch"]),
            "streamed": span_from(value.get("streamed")),
            "arrays": tuple(ArrayFacts(**item) for item in value.get("arrays", ())),
            "kept_arrays": tuple(ArrayFacts(**item) for item in value.get("kept_arrays", ())),
            "tensors": tuple(ArrayFacts(**item) for item in value.get("tensors", ())),
            "notes": tuple(value.get("notes", ())),
        }
    )
