"""Stand-ins for GPU kernels in a TensorFlow that was built without them (tensorflow-cpu).

Grappler looks up every node's kernel when it optimises for a GPU, and writes a long complaint for each one it does not find:
that takes two thirds of its time. The stand-ins are found, and can never run: there is no GPU for them to run on.
Names of TensorFlow's C API used, tested with TensorFlow 2.21.0: `TF_NewKernelBuilder`, `TF_RegisterKernelBuilder`, `TF_NewStatus`.
"""

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

COMPUTE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
MADE_BY_GRAPPLER = (
    "Transpose",
    "AddN",
    "_FusedConv2D",
    "_FusedMatMul",
    "_FusedBatchNormEx",
    "Const",
    "VarHandleOp",
    "Identity",
    "DataFormatDimMap",
    "DataFormatVecPermute",
)
_registered: set[str] = set()


def _never(kernel: Any, context: Any) -> None:
    raise AssertionError("a stand-in for a GPU kernel was run")


_never_run = COMPUTE(_never)  # kept here: TensorFlow holds a pointer to it


def register(kinds: Iterable[str]) -> None:
    """Make sure that each of these kinds of op has a kernel for GPUs, real or not."""
    import tensorflow as tf

    missing = sorted({*kinds, *MADE_BY_GRAPPLER} - _registered)
    if not missing or tf.test.is_built_with_gpu_support():
        return
    try:
        library = ctypes.CDLL(str(Path(tf.__file__).with_name("libtensorflow_cc.so.2")))
        new, add, status = library.TF_NewKernelBuilder, library.TF_RegisterKernelBuilder, library.TF_NewStatus
    except (OSError, AttributeError):
        return  # another layout of TensorFlow: it only takes longer
    new.restype = status.restype = ctypes.c_void_p
    new.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, COMPUTE, ctypes.c_void_p]
    add.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    outcome = status()
    for kind in missing:
        builder = new(kind.encode(), b"GPU", None, _never_run, None)
        add(f"legroom_{kind}".encode(), builder, outcome)
        _registered.add(kind)
