"""A process in which TensorFlow's CPU gets its memory from the real BFC allocator, and only so much of it.

TensorFlow reads these variables once, when it is imported; a script may set them differently before that, so they are put
back at that very moment. With oneDNN on, an allocation past the limit is a segmentation fault instead of an error.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from collections.abc import Mapping, Sequence

from legroom.units import MIB

REHEARSAL = "LEGROOM_REHEARSAL"  # holds what must be in force when TensorFlow is imported


def limited_environment(limit_bytes: int) -> dict[str, str]:
    """The variables of a process whose TensorFlow may use that much, in whole MiB."""
    settings = {
        **allocator_settings(limit_bytes),
        "TF_CPP_MIN_LOG_LEVEL": "1",  # its warnings say who asked for what; the dump of the pool is below them
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    return {**settings, "PYTHONFAULTHANDLER": "1", REHEARSAL: json.dumps(settings)}


def is_rehearsal() -> bool:
    """Whether this process is one."""
    return REHEARSAL in os.environ


def limit_here() -> int:
    """The limit of this process."""
    return int(json.loads(os.environ[REHEARSAL])["TF_CPU_BFC_MEM_LIMIT_IN_MB"]) * MIB


class BeforeTensorFlow(importlib.abc.MetaPathFinder):
    """Finds nothing; puts the variables back when TensorFlow is looked for."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == "tensorflow":
            os.environ.update(self.settings)
        return None


def hold_to_the_limit() -> None:
    """In a rehearsal: whatever the script sets, TensorFlow is imported with the limit."""
    if is_rehearsal():
        hold_to(json.loads(os.environ[REHEARSAL]))


def hold_to(settings: Mapping[str, str]) -> None:
    """Whatever is set meanwhile, TensorFlow is imported with these variables."""
    sys.meta_path.insert(0, BeforeTensorFlow(settings))


def allocator_settings(limit_bytes: int) -> dict[str, str]:
    """TensorFlow's CPU with the BFC allocator and that much memory, in whole MiB."""
    return {
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_CPU_ALLOCATOR_USE_BFC": "1",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_bytes // MIB),
    }
