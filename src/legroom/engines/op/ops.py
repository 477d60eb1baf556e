"""One operation of TensorFlow as the simulation sees it: its kind, what goes in, what comes out. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from legroom.records.step import dtype_bytes

HANDLES = (
    "resource",
    "variant",
    "string",
)  # their tensors are a few bytes on the host; what they point to is counted elsewhere


@dataclass(frozen=True, slots=True)
class Array:
    """The shape and dtype (TensorFlow's name of it: float32, bfloat16, int32, bool, resource, variant, string) of one tensor."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        return 0 if self.dtype in HANDLES else dtype_bytes(self.dtype, prod(self.shape))


@dataclass(frozen=True, slots=True)
class Op:
    """One operation about to run. `attributes` as plain Python: strings decoded, lists as tuples, dtypes by name."""

    name: str
    kind: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
