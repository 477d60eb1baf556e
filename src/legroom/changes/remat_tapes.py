"""What TensorFlow records around a block: gradient tapes, which are stopped inside, and forward accumulators, which nobody serves.

Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.eager.record.should_record_backprop`,
`tensorflow.python.pywrap_tfe` (`TFE_Py_TapeSetIsStopped`, `TFE_Py_TapeSetStopOnThread`, `TFE_Py_TapeSetRestartOnThread`,
`TFE_Py_PackJVPs`, which answers one entry for each accumulator that is active).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from legroom.errors import InputError


def recorded(tensors: Sequence[Any]) -> bool:
    """Whether a tape would record what is computed from one of them, if it were not stopped."""
    tapes = importlib.import_module("tensorflow.python.pywrap_tfe")
    record = importlib.import_module("tensorflow.python.eager.record")
    stopped = tapes.TFE_Py_TapeSetIsStopped()
    if stopped:
        tapes.TFE_Py_TapeSetRestartOnThread()
    try:
        return bool(tensors) and bool(record.should_record_backprop(tensors))
    finally:
        if stopped:
            tapes.TFE_Py_TapeSetStopOnThread()


def refuse_forward_mode(name: str, given: Sequence[Any]) -> None:
    """A custom gradient gives an accumulator nothing, or zeros."""
    tapes = importlib.import_module("tensorflow.python.pywrap_tfe")
    if given and tapes.TFE_Py_PackJVPs(list(given[:1]))[0]:
        raise InputError(
            f"The block {name!r} cannot be recomputed under a tf.autodiff.ForwardAccumulator: it would see no derivative.",
            "Call legroom.undo(model) first, or use tf.GradientTape.",
        )
