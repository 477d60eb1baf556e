"""The part of TensorFlow's C API that a custom device needs: structures, signatures, the eager context.

From tensorflow/c/eager/c_api_experimental.h and c_api.h. Tested with TensorFlow 2.21.0, where TFE_CUSTOM_DEVICE_VERSION
is 4; another layout raises `MissingError`. Private name used: `Context._handle`.
"""

import ctypes
import re
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from legroom.errors import MissingError

VERSION = 4  # of CustomDevice and HandleMethods
HINT = (
    "Eager steps are recorded on Linux with TensorFlow 2.21; run the step as a @tf.function to predict it as a graph."
)

Execute = ctypes.CFUNCTYPE(None, c_void_p, ctypes.POINTER(c_int), ctypes.POINTER(c_void_p), c_void_p, c_void_p)
CopyIn = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
CopyOut = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_char_p, c_void_p, c_void_p)
Delete = ctypes.CFUNCTYPE(None, c_void_p)
Pin = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p)
Rank = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
Dimension = ctypes.CFUNCTYPE(c_int64, c_void_p, c_int, c_void_p)
FreeArray = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_void_p)


class CustomDevice(ctypes.Structure):
    """TFE_CustomDevice."""

    _fields_ = (
        ("version", c_int),
        ("copy_tensor_to_device", CopyIn),
        ("copy_tensor_from_device", CopyOut),
        ("execute", Execute),
        ("delete_device", Delete),
        ("pack", c_void_p),
        ("shall_pin_to_this_device", Pin),
    )


class HandleMethods(ctypes.Structure):
    """TFE_CustomDeviceTensorHandle."""

    _fields_ = (
        ("version", c_int),
        ("num_dims", Rank),
        ("dim", Dimension),
        ("deallocator", Delete),
        ("summarize", c_void_p),
    )


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = (("data", c_void_p), ("length", c_size_t), ("deallocator", c_void_p))


class ShapeItem(ctypes.Structure):
    """TF_ShapeAndType."""

    _fields_ = (("num_dims", c_int), ("dims", ctypes.POINTER(c_int64)), ("dtype", c_int))


class ShapeList(ctypes.Structure):
    """TF_ShapeAndTypeList."""

    _fields_ = (("num_items", c_int), ("items", ctypes.POINTER(ShapeItem)))


FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "TF_NewStatus": (c_void_p, ()),
    "TF_SetStatus": (None, (c_void_p, c_int, c_char_p)),
    "TF_GetCode": (c_int, (c_void_p,)),
    "TF_Message": (c_char_p, (c_void_p,)),
    "TF_NewBuffer": (ctypes.POINTER(Buffer), ()),
    "TF_DeleteBuffer": (None, (ctypes.POINTER(Buffer),)),
    "TF_NewTensor": (
        c_void_p,
        (c_int, ctypes.POINTER(c_int64), c_int, c_void_p, c_size_t, FreeArray, c_void_p),
    ),
    "TF_DeleteTensor": (None, (c_void_p,)),
    "TF_DataTypeSize": (c_size_t, (c_int,)),
    "TF_TensorData": (c_void_p, (c_void_p,)),
    "TF_TensorByteSize": (c_size_t, (c_void_p,)),
    "TF_NewShapeAndTypeList": (ctypes.POINTER(ShapeList), (c_int,)),
    "TF_ShapeAndTypeListSetShape": (None, (ctypes.POINTER(ShapeList), c_int, ctypes.POINTER(c_int64), c_int)),
    "TF_DeleteShapeAndTypeList": (None, (ctypes.POINTER(ShapeList),)),
    "TFE_InferShapes": (None, (c_void_p,) * 8),
    "TFE_RegisterCustomDevice": (None, (c_void_p, CustomDevice, c_char_p, c_void_p, c_void_p)),
    "TFE_NewCustomDeviceTensorHandle": (c_void_p, (c_void_p, c_char_p, c_int, c_void_p, HandleMethods, c_void_p)),
    "TFE_NewTensorHandle": (c_void_p, (c_void_p, c_void_p)),
    "TFE_DeleteTensorHandle": (None, (c_void_p,)),
    "TFE_TensorHandleCopySharingTensor": (c_void_p, (c_void_p, c_void_p)),
    "TFE_TensorHandleDataType": (c_int, (c_void_p,)),
    "TFE_TensorHandleNumDims": (c_int, (c_void_p, c_void_p)),
    "TFE_TensorHandleDim": (c_int64, (c_void_p, c_int, c_void_p)),
    "TFE_TensorHandleResolve": (c_void_p, (c_void_p, c_void_p)),
    "TFE_NewOp": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "TFE_DeleteOp": (None, (c_void_p,)),
    "TFE_OpSetDevice": (None, (c_void_p, c_char_p, c_void_p)),
    "TFE_OpSetAttrType": (None, (c_void_p, c_char_p, c_int)),
    "TFE_OpAddAttrs": (None, (c_void_p, c_void_p)),
    "TFE_OpAddInput": (None, (c_void_p, c_void_p, c_void_p)),
    "TFE_Execute": (None, (c_void_p, ctypes.POINTER(c_void_p), ctypes.POINTER(c_int), c_void_p)),
    "TFE_OpGetName": (c_char_p, (c_void_p, c_void_p)),
    "TFE_OpGetAttrs": (c_void_p, (c_void_p,)),
    "TFE_OpAttrsSerialize": (None, (c_void_p, ctypes.POINTER(Buffer), c_void_p)),
    "TFE_OpGetFlatInputCount": (c_int, (c_void_p, c_void_p)),
    "TFE_OpGetFlatInput": (c_void_p, (c_void_p, c_int, c_void_p)),
}


@cache
def load() -> Any:
    """TensorFlow's C API with its signatures."""
    import tensorflow as tf

    root = Path(tf.__file__).parent
    header = root / "include/tensorflow/c/eager/c_api_experimental.h"
    found = re.search(r"#define TFE_CUSTOM_DEVICE_VERSION (\d+)", header.read_text()) if header.is_file() else None
    if found is None or int(found[1]) != VERSION:
        raise MissingError(
            f"TensorFlow {tf.__version__} has custom devices of layout {found[1] if found else 'unknown'}; "
            f"Legroom knows layout {VERSION}.",
            HINT,
        )
    try:
        library = ctypes.CDLL(str(root / "libtensorflow_cc.so.2"))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise MissingError(f"TensorFlow {tf.__version__} lacks what a custom device needs: {error}", HINT) from error
    return library


def context_pointer() -> int:
    """TensorFlow's eager context, as the C API wants it."""
    from tensorflow.python.eager import context

    current = context.context()
    current.ensure_initialized()
    capsule = getattr(current, "_handle", None)
    if type(capsule).__name__ != "PyCapsule":
        raise MissingError(f"TensorFlow's eager context has an unknown form: {type(capsule).__name__}.", HINT)
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = c_char_p, (ctypes.py_object,)
    pointer.restype, pointer.argtypes = c_void_p, (ctypes.py_object, c_char_p)
    return int(pointer(capsule, name(capsule)))
