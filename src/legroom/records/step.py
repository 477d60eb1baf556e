"""A Step: what is trained, as capture found it. Plain data; the live model stays with whoever captured it."""

import re
from dataclasses import dataclass
from math import prod
from typing import Literal

Framework = Literal["tensorflow", "jax"]
Execution = Literal["xla", "graph", "eager"]
Role = Literal["weight", "state", "optimizer", "metric", "input", "other"]


def dtype_bytes(dtype: str, elements: int) -> int:
    """What `elements` of that dtype take; the width is the first number in its name (`bfloat16` → 2 bytes)."""
    number = re.search(r"\d+", dtype)
    bits = 8 if dtype == "bool" else int(number[0]) if number else 0
    return (elements * bits + 7) // 8


@dataclass(frozen=True, slots=True)
class Tensor:
    """One array that goes into the step: a leaf of the batch, or a variable."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role = "input"
    layer: str = ""

    @property
    def size_bytes(self) -> int:
        return dtype_bytes(self.dtype, prod(self.shape))


@dataclass(frozen=True, slots=True)
class Step:
    """One training step, for one batch size, as it would run on the target.

    `parameters` are the compiled program's own, in its order; `resident_bytes` is what stays on the device beside them. `makes_slots`: the
    optimizer's variables are not there yet; TensorFlow makes them when it first traces the step.
    """

    framework: Framework
    framework_version: str
    keras_version: str
    source: str
    execution: Execution
    execution_reason: str
    batch: int | None
    parameters: tuple[Tensor, ...]
    layers: tuple[str, ...] = ()
    optimizer: str | None = None
    policy: str = "float32"
    resident_bytes: int = 0
    resident_reason: str = ""
    compiled_for_gpu: bool = False  # only because there is one: on a CPU it would run op by op
    makes_slots: bool = False
    notes: tuple[str, ...] = ()

    def sum_bytes(self, role: Role) -> int:
        """The bytes of all parameters in that role."""
        return sum(tensor.size_bytes for tensor in self.parameters if tensor.role == role)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A Step as the compiler takes it: serialized StableHLO (from JAX) or an HLO module (from TensorFlow).

    `identity` is the same for the same program in every run, even where its bytes are not.
    """

    step: Step
    program: bytes
    format: Literal["stablehlo", "hlo"]
    identity: str
