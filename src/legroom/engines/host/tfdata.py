"""A live tf.data pipeline read into `Stage` records: what it is made of, its sizes and counts; nothing of it runs.

Outer stages are Python objects that keep their inputs and arguments in private attributes; pipelines inside the function of
an interleave or flat_map exist only as operations of its traced graph. Both spell their stages and arguments alike, so one
table of kinds serves both. Tested with TensorFlow 2.21; what has another name there is an `unknown` stage and a note.
"""

import os
import re
import sys
from dataclasses import replace
from math import ceil
from typing import Any

from legroom.capture.placement import is_kept_on_cpu
from legroom.engines.host.elements import STRING_BYTES, size_of_samples, size_of_spec
from legroom.engines.host.functions import constant_bytes, graph_of, is_identity, is_stateful, work_of
from legroom.engines.host.holdings import ELEMENT_BYTES, TENSOR_BYTES
from legroom.engines.host.inner import read_inner
from legroom.engines.host.kinds import NUMBERS, SAME_ELEMENTS, kind_of
from legroom.engines.host.sampling import sample
from legroom.engines.host.span import Span, exactly
from legroom.engines.host.stages import INFINITE, Pipeline, Stage

TESTED = "TensorFlow 2.21"
ON_HOST = ("int32", "string")  # what an eager tensor keeps in host memory wherever it is made
ALIGNMENT = 64  # of TensorFlow's tensors: slices at multiples of it are views, others copies


def read_pipeline(dataset: Any, may_sample: bool = False) -> tuple[Pipeline, tuple[str, ...]]:
    """The pipeline behind a `tf.data.Dataset`, and what could not be known about it."""
    reader = Reader(may_sample)
    stage = reader.read(dataset)
    options = dataset.options() if hasattr(dataset, "options") else None
    defaults = getattr(getattr(options, "experimental_optimization", None), "apply_default_optimizations", None)
    autotune = getattr(options, "autotune", None)
    threads = getattr(getattr(options, "threading", None), "private_threadpool_size", None)
    pipeline = Pipeline(
        stage,
        optimized=defaults is not False,
        autotune=getattr(autotune, "enabled", None) is not False,
        threads=threads or None,
        ram_budget_bytes=getattr(autotune, "ram_budget", None) or None,
    )
    return pipeline, tuple(dict.fromkeys(reader.notes))


def number(dataset: Any, name: str) -> int | None:
    """A stage's argument, if it is known before it runs; the largest of several."""
    import tensorflow as tf

    value = getattr(dataset, f"_{name}", None)
    if value is None:
        return None
    static = tf.get_static_value(value) if tf.is_tensor(value) else value
    try:
        return None if static is None else int(max(static)) if getattr(static, "ndim", 0) else int(static)
    except (TypeError, ValueError):
        return None


class Reader:
    """Reads one pipeline, from its last stage to its sources."""

    def __init__(self, may_sample: bool) -> None:
        self.may_sample = may_sample
        self.notes: list[str] = []

    def read(self, dataset: Any) -> Stage:
        return self.read_with_batch(dataset)[0]

    def read_with_batch(self, dataset: Any) -> tuple[Stage, int | None]:
        """The stage, and the batch size of its elements where they are batches."""
        class_name = type(dataset).__name__
        name = re.sub(r"(^_|V[0-9]$|Adapter$)", "", class_name)
        inside = getattr(dataset, "_impl", None) or getattr(dataset, "_dataset", None)
        if inside is not None and hasattr(inside, "element_spec"):
            return self.read_with_batch(inside)
        kind = kind_of(name)
        if kind == "cache" and self.in_file(dataset):
            kind = "pass"
        befores = [self.read_with_batch(item) for item in inputs_of(dataset)]
        inputs = tuple(stage for stage, _ in befores)
        count = number(dataset, NUMBERS.get(kind, "count"))
        batch = self.batch_after(kind, count, befores[0][1] if befores else None)
        stage = Stage(
            kind, label(name, count), count=count, parallel=number(dataset, "num_parallel_calls"), inputs=inputs
        )
        if kind == "interleave":
            stage = replace(stage, block=number(dataset, "block_length") or 1, count=count if "Inter" in name else 1)
        cardinality = self.cardinality(dataset)
        stage = replace(stage, cardinality=cardinality, most=most_of(stage, cardinality))
        stage = self.with_element(stage, dataset, batch)
        if kind == "source":
            stage = with_tensors(stage, dataset, slices="Slice" in name)
        if kind == "map" and inputs and is_identity(graph_of(dataset)):
            kind, stage = "pass", replace(stage, kind="pass")
        if kind in SAME_ELEMENTS and inputs:
            whole = None if stage.name.startswith("repeat") else inputs[0].whole
            stage = replace(stage, aliased_bytes=inputs[0].aliased_bytes, whole=whole)
        if kind == "zip":
            stage = replace(stage, aliased_bytes=sum(item.aliased_bytes for item in inputs))
        if kind in ("map", "interleave"):
            stage = self.with_function(stage, dataset, batch)
        if kind in ("map", "batch") and inputs and inputs[0].whole is not None:
            stage = replace(stage, whole=scaled(inputs[0].whole, inputs[0], stage))
        if kind == "unknown" and not inputs:
            self.notes.append(f"{class_name} hides where its elements come from; what it holds itself is not counted.")
        return stage, batch

    @staticmethod
    def in_file(dataset: Any) -> bool:
        import tensorflow as tf

        return bool(tf.get_static_value(getattr(dataset, "_filename", None)) or b"")

    @staticmethod
    def batch_after(kind: str, count: int | None, before: int | None) -> int | None:
        if kind == "batch":
            return count
        return before if kind in (*SAME_ELEMENTS, "map", "zip") else None

    def cardinality(self, dataset: Any) -> int | None:
        """How many elements: INFINITE, or None where tf.data does not know."""
        import tensorflow as tf

        try:
            count = int(dataset.cardinality())
        except (AttributeError, TypeError, ValueError, NotImplementedError, RuntimeError, tf.errors.OpError):
            return None
        return count if count >= INFINITE else None

    def with_element(self, stage: Stage, dataset: Any, batch: int | None) -> Stage:
        """The stage with the size of its elements: by its spec, by its input's, by a sample, within bounds."""
        size, components, closed = size_of_spec(dataset.element_spec, batch)
        before = stage.inputs[0].element if stage.inputs else None
        if closed:
            return replace(stage, element=size, components=components)
        if stage.kind in SAME_ELEMENTS and before is not None:
            return replace(stage, element=before, components=components)
        if stage.kind == "batch" and before is not None and stage.count and "padded" not in stage.name:
            return replace(stage, element=before * stage.count, components=components)
        if stage.kind == "zip":
            size = sum((item.element for item in stage.inputs), exactly(0))
            return replace(stage, element=size, components=components)
        sampled = size_of_samples(sample(dataset), size) if self.may_sample else None
        if sampled is None:
            self.notes.append(
                f"{stage.name}: the size of an element is not known before one is made "
                "(an open dimension counts as 1 to 1024, a string as up to 64 KiB)."
            )
        else:
            self.notes.append(
                f"{stage.name}: the size of an element is that of a few that were made, at most twice that."
            )
        return replace(stage, element=size if sampled is None else sampled, components=components)

    def with_function(self, stage: Stage, dataset: Any, batch: int | None) -> Stage:
        """What a map's function holds, or the pipeline that an interleave's function opens."""
        graph = graph_of(dataset)
        if graph is None or not stage.inputs:
            return stage
        stage = replace(stage, constant_bytes=constant_bytes(graph))
        if stage.kind == "interleave":
            stage = replace(stage, inner=read_inner(graph, stage.element))
            return self.with_files(stage, file_names(dataset)) if reads_files(stage.inner) else stage
        work, complete = work_of(graph, batch, (stage.inputs[0].element, stage.element))
        if not complete:
            self.notes.append(
                f"{stage.name}: not all that its function holds can be read from its graph; bounds are wider."
            )
        return replace(stage, work=work, stateful=is_stateful(graph))

    @staticmethod
    def with_files(stage: Stage, names: Any) -> Stage:
        """A reader of files is bounded by what is in them, and by the objects around each of its strings."""
        sizes = [os.path.getsize(name) for name in names if os.path.isfile(name)]
        if not sizes or len(sizes) < len(names):
            return stage
        size = sum(sizes)
        strings = size // max(1, stage.element.size - STRING_BYTES) + 1
        held = size + strings * (STRING_BYTES + ELEMENT_BYTES + TENSOR_BYTES)
        largest = max(stage.element.low, size + STRING_BYTES)
        element = stage.element.at_most(Span(stage.element.low, largest, largest))
        return replace(stage, whole=Span(0, held, 2 * held), element=element)


def file_names(dataset: Any) -> list[str]:
    """The file names at the start of a pipeline of file names, if they are known."""
    import tensorflow as tf

    while inputs_of(dataset):
        dataset = inputs_of(dataset)[0]
    tensors = [item for item in getattr(dataset, "_tensors", ()) if getattr(item, "dtype", None) == tf.string]
    if len(tensors) != 1 or tf.get_static_value(tensors[0]) is None:
        return []
    return [os.fsdecode(name) for name in tf.get_static_value(tensors[0]).ravel()]


def reads_files(stage: Stage | None) -> bool:
    """Whether a pipeline yields what is in files as it is: uncompressed records or lines, whatever order or buffer."""
    while stage is not None and stage.kind in SAME_ELEMENTS and len(stage.inputs) == 1:
        stage = stage.inputs[0]
    return stage is not None and stage.kind == "files"


def scaled(whole: Span, before: Stage, stage: Stage) -> Span:
    """All elements of a stage together, by all of its input's: as many, or a batch for several, each of another size."""
    one = stage.element.size + ELEMENT_BYTES + TENSOR_BYTES * stage.components
    other = before.element.size + ELEMENT_BYTES + TENSOR_BYTES * before.components
    ratio = one / other / (max(1, stage.count or 1) if stage.kind == "batch" else 1)
    return Span(0, int(whole.size * ratio), int(whole.high * ratio * 2))


def label(name: str, count: int | None) -> str:
    """A stage as a user would write it: `shuffle(1000)`."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Dataset")).lower()
    shown = {"tensor_slice": "from_tensor_slices", "tensor": "from_tensors", "parallel_map": "map"}.get(words, words)
    return shown if count is None else f"{shown}({'AUTOTUNE' if count == -1 else count})"


def inputs_of(dataset: Any) -> list[Any]:
    read = getattr(dataset, "_inputs", None)
    return list(read()) if read is not None else []


def most_of(stage: Stage, cardinality: int | None) -> int | None:
    """The most elements that a stage can have, where their number is not known."""
    if cardinality is not None:
        return None if cardinality == INFINITE else cardinality
    before = stage.inputs[0].most if stage.inputs else None
    if stage.name.startswith("take(") and stage.count and stage.count > 0:
        return stage.count if before is None else min(before, stage.count)
    if before is None or stage.name.startswith("repeat"):
        return None
    if stage.kind == "batch":
        return ceil(before / max(1, stage.count or 1))
    return before if stage.kind in (*SAME_ELEMENTS, "map") else None


def with_tensors(stage: Stage, dataset: Any, slices: bool) -> Stage:
    """The tensors behind a source, whether the script holds them too, and whether elements are views of them."""
    tensors = tensors_of(dataset)
    sizes = [(item.shape.num_elements() or 0) * (item.dtype.size or 0) for item in tensors]
    if any(item.dtype.name == "string" for item in tensors):
        return replace(stage, kept_bytes=stage.element.size * max(1, stage.cardinality or 1))
    rows = max(1, (stage.cardinality or 1) if slices else 1)
    aliased = sum(size // rows for size in sizes if size // rows % ALIGNMENT == 0)
    given = bool(sizes) and all(count > own_references() for count in map(sys.getrefcount, tensors))
    device = sum(
        size
        for size, item in zip(sizes, tensors, strict=True)
        if item.dtype.name not in ON_HOST and not is_kept_on_cpu(item)
    )
    return replace(stage, kept_bytes=sum(sizes), aliased_bytes=aliased, given=given, device_bytes=device)


def tensors_of(dataset: Any) -> list[Any]:
    return [item for item in getattr(dataset, "_tensors", ()) if hasattr(item, "dtype") and item.shape.rank is not None]


def source_tensors(dataset: Any) -> list[Any]:
    """The tensors behind a dataset's sources."""
    inside = getattr(dataset, "_impl", None) or getattr(dataset, "_dataset", None)
    befores = [inside] if hasattr(inside, "element_spec") else inputs_of(dataset)
    return [*tensors_of(dataset), *(tensor for before in befores for tensor in source_tensors(before))]


def own_references() -> int:
    """How often a tensor is referred to that a dataset has made from an array; one that the script keeps has more."""
    import numpy as np
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(np.zeros((1, 1), "float32"))
    tensors = tensors_of(dataset)
    return max(map(sys.getrefcount, tensors), default=0)
