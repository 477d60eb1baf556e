"""What a captured step's process looks like from outside: its data, its memory so far, the variables that it has made.

Private names used, tested with TensorFlow 2.21.0: `OwnedIterator._dataset`, through which a loop's dataset is found.
"""

import gc
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

import psutil

from legroom.capture.batch import iter_specs
from legroom.capture.keras_data import is_dataset
from legroom.capture.keras_fit import KerasStep
from legroom.capture.tf_step import FunctionStep
from legroom.engines.host.describe import describe, facts_of
from legroom.engines.host.stages import ArrayFacts, Data, data_from
from legroom.engines.host.tfdata import source_tensors

ITERATOR = "OwnedIterator"


@dataclass(frozen=True, slots=True)
class Observed:
    """The process at the moment its step was captured. `made_bytes` are variables that are in `resident_bytes` already."""

    data: Data
    resident_bytes: int
    made_bytes: int
    layers: int

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "data": self.data.as_dict()}


def observed_from(value: dict[str, Any]) -> Observed:
    return Observed(**{**value, "data": data_from(value["data"])})


def observe(captured: KerasStep | FunctionStep, *, is_script: bool = False) -> Observed:
    """Look at the process that has captured this step. Up to three elements of its data may be made.

    `is_script`: this is the very process that would train, so that every tensor that is alive in it counts.
    """
    made = 0
    if isinstance(captured, KerasStep):
        given = dict(captured.given or {})
        x = given.pop("x", None)
        data = describe(x, given.pop("y", None), may_sample=True, **given) if x is not None else Data("none")
        made = sum(variable_bytes(variable) for variable in captured.model.variables)
    else:
        data = describe_loop()
    if is_script and "tensorflow" in sys.modules:
        data = replace(data, tensors=own_tensors(captured))
    return Observed(data, int(psutil.Process().memory_info().rss), made, len(captured.step.layers))


def own_tensors(captured: KerasStep | FunctionStep) -> tuple[ArrayFacts, ...]:
    """The tensors that are alive here, but for those of the step's batch and of the datasets and arrays that it trains on."""
    import tensorflow as tf

    counted = {id(tensor) for dataset in live_datasets() for tensor in source_tensors(dataset)}
    if isinstance(captured, KerasStep):
        given = captured.given or {}
        parts = [given.get(name) for name in ("x", "y", "sample_weight", "validation_data")]
        counted |= {id(tensor) for tensor in tf.nest.flatten(parts)}
        counted |= {id(tensor) for part in parts if is_dataset(part) for tensor in source_tensors(part)}
    alive = [
        found
        for found in gc.get_objects()
        if isinstance(found, tf.Tensor) and hasattr(found, "numpy") and id(found) not in counted and found.dtype.size
    ]
    batch = captured.data if isinstance(captured, KerasStep) else (captured.args, captured.kwargs)
    for spec in iter_specs(batch):
        same = next(
            (i for i, one in enumerate(alive) if tuple(one.shape) == spec.shape and one.dtype == spec.dtype), -1
        )
        if same >= 0:
            alive.pop(same)
    return tuple(facts_of(alive))


def variable_bytes(variable: Any) -> int:
    from legroom.engines.op.ops import Array

    shape = tuple(variable.shape)
    return 0 if None in shape else Array(shape, str(variable.dtype)).size_bytes


def describe_loop() -> Data:
    """A custom loop does not say where its batches come from: a tf.data pipeline that is being iterated does."""
    if "tensorflow" not in sys.modules:
        return Data("none", notes=("The loop's data is not seen: only what the process holds by now is counted.",))
    live = live_datasets()
    if not live:
        return Data("none", notes=("The loop's data is not seen: only what the process holds by now is counted.",))
    return describe(live[-1], may_sample=False)


def live_datasets() -> list[Any]:
    """The datasets that are being iterated."""
    datasets = [getattr(found, "_dataset", None) for found in gc.get_objects() if type(found).__name__ == ITERATOR]
    return [dataset for dataset in datasets if dataset is not None]
