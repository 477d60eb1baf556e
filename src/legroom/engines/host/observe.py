"""What a captured step's process looks like from outside: its data, its memory so far, the variables that it has made.

Private names used, tested with TensorFlow 2.21.0: `OwnedIterator._dataset`, through which a loop's dataset is found.
"""

import gc
import sys
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from legroom.capture.keras_fit import KerasStep
from legroom.capture.tf_step import FunctionStep
from legroom.engines.host.describe import describe
from legroom.engines.host.stages import Data, data_from

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


def observe(captured: KerasStep | FunctionStep) -> Observed:
    """Look at the process that has captured this step. Up to three elements of its data may be made."""
    made = 0
    if isinstance(captured, KerasStep):
        given = dict(captured.given or {})
        x = given.pop("x", None)
        data = describe(x, given.pop("y", None), may_sample=True, **given) if x is not None else Data("none")
        made = sum(variable_bytes(variable) for variable in captured.model.variables)
    else:
        data = describe_loop()
    return Observed(data, int(psutil.Process().memory_info().rss), made, len(captured.step.layers))


def variable_bytes(variable: Any) -> int:
    from legroom.engines.op.ops import Array

    shape = tuple(variable.shape)
    return 0 if None in shape else Array(shape, str(variable.dtype)).size_bytes


def describe_loop() -> Data:
    """A custom loop does not say where its batches come from: a tf.data pipeline that is being iterated does."""
    if "tensorflow" not in sys.modules:
        return Data("none", notes=("The loop's data is not seen: only what the process holds by now is counted.",))
    datasets = [getattr(found, "_dataset", None) for found in gc.get_objects() if type(found).__name__ == ITERATOR]
    live = [dataset for dataset in datasets if dataset is not None]
    if not live:
        return Data("none", notes=("The loop's data is not seen: only what the process holds by now is counted.",))
    return describe(live[-1], may_sample=False)
