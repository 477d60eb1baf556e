"""Keras on JAX takes cuDNN's fused attention where it sees an Ampere card or newer; this makes it see the target instead.

In bfloat16 and float16 (and without dropout) that saves the matrix of scores, a quarter of a vision transformer's peak.
Private names used, tested with JAX 0.10.2: `jax._src.cudnn.fused_attention_stablehlo`.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from legroom.errors import MissingError

CUDNN = 91000  # 9.10.0: what a current JAX installs
TESTED = "JAX 0.10.2"
NAMES = ("check_cudnn_version", "check_compute_capability", "is_cuda_compute_capability_equal")


@contextmanager
def gpu_attention_lowering(capability: tuple[int, int]) -> Iterator[None]:
    """While it is open, JAX answers questions about the card as the target would."""
    module = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
    missing = [name for name in NAMES if not hasattr(module, name)]
    if missing:
        raise MissingError(
            f"This JAX asks for cuDNN's attention in another way than the one Legroom was tested with ({TESTED}): no {missing[0]}.",
            "Install a tested version, or report it.",
        )
    answers: dict[str, Any] = {
        "check_cudnn_version": lambda: CUDNN,
        "check_compute_capability": lambda asked: capability >= version(asked),
        "is_cuda_compute_capability_equal": lambda asked: capability == version(asked),
    }
    kept = {name: getattr(module, name) for name in NAMES}
    for name in NAMES:
        setattr(module, name, answers[name])
    try:
        yield
    finally:
        for name in NAMES:
            setattr(module, name, kept[name])


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
