"""A TensorFlow device that computes nothing: its tensors have a shape and a dtype and no memory.

TensorFlow lets a *custom device* be plugged into eager execution (see `c_api`, which names the version it was tested
with). Every operation placed there is handed to `Handler.execute`, and every tensor tells when its last holder let go of
it. This file turns pointers into plain integers and errors into exceptions; `recorder` decides what operations do.
"""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_int, c_int64, c_void_p
from math import prod
from typing import Any, Protocol

from legroom.engines.op import c_api

NAME = "/job:localhost/replica:0/task:0/device:LEGROOM:0"
HOST = b"/job:localhost/replica:0/task:0/device:CPU:0"
ALIGNMENT = 64
INTERNAL = 13  # TF_INTERNAL, the status code for "this is our own fault"


class StatusError(Exception):
    """TensorFlow refused something: its status code and message, to be handed on as they are."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Handler(Protocol):
    """What the device does. Tensors are the integers that TensorFlow's handles carry."""

    def execute(self, op: int, count: int) -> list[int]:
        """The handles of the outputs of an operation (a TFE_Op pointer) that has room for `count`."""

    def copy_in(self, handle: int) -> int: ...

    def copy_out(self, handle: int) -> int: ...

    def shape(self, tensor: int) -> tuple[int, ...]: ...

    def drop(self, tensor: int) -> None: ...

    def fail(self, error: Exception) -> None:
        """An error of our own happened in a callback; TensorFlow is told of an internal error."""


class FakeDevice:
    """The registered device; one for a process, since TensorFlow cannot take a device back."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.library = c_api.load()
        self.context = c_api.context_pointer()
        self.status = int(self.library.TF_NewStatus())
        self.arrays: dict[int, Any] = {}  # memory that TensorFlow borrows
        self.methods = c_api.HandleMethods(
            c_api.VERSION, c_api.Rank(self._rank), c_api.Dimension(self._dimension), c_api.Delete(self._drop), None
        )
        self.free_array = c_api.FreeArray(self._free)
        self.structure = c_api.CustomDevice(
            c_api.VERSION,
            c_api.CopyIn(self._copy_in),
            c_api.CopyOut(self._copy_out),
            c_api.Execute(self._execute),
            c_api.Delete(lambda _info: None),
            None,
            c_api.Pin(lambda _op, _status: True),
        )
        self.call("TFE_RegisterCustomDevice", self.context, self.structure, NAME.encode(), None)

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function whose last argument is a status; raise it when it is an error."""
        result = getattr(self.library, function)(*arguments, self.status)
        code = self.library.TF_GetCode(self.status)
        if code:
            message = self.library.TF_Message(self.status).decode(errors="replace")
            self.library.TF_SetStatus(self.status, 0, b"")
            raise StatusError(code, message)
        return result

    def new_handle(self, tensor: int, dtype: int) -> int:
        """A handle of a tensor without memory; `tensor` comes back in `shape` and, when nobody holds it, in `drop`."""
        arguments = (self.context, NAME.encode(), dtype, tensor, self.methods)
        return int(self.call("TFE_NewCustomDeviceTensorHandle", *arguments))

    def host_handle(self, value: Any | None, shape: tuple[int, ...], dtype: int) -> int:
        """A handle of a real tensor on the host with a NumPy array's value; None gives zeros whose pages are not touched until they are read."""
        import numpy as np

        size = prod(shape) * (self.library.TF_DataTypeSize(dtype) if value is None else value.itemsize)
        room = np.zeros(size + ALIGNMENT, np.uint8)  # TensorFlow copies what is not aligned
        address = room.ctypes.data + -room.ctypes.data % ALIGNMENT
        if value is not None:
            ctypes.memmove(address, np.ascontiguousarray(value).ctypes.data, size)
        self.arrays[address] = room
        arguments = (dtype, sizes(shape), len(shape), address, size, self.free_array, None)
        tensor = self.library.TF_NewTensor(*arguments)
        try:
            return int(self.call("TFE_NewTensorHandle", tensor))
        finally:
            self.library.TF_DeleteTensor(tensor)

    def share(self, handle: int) -> int:
        """A second handle of the same real tensor."""
        return int(self.call("TFE_TensorHandleCopySharingTensor", handle))

    def dtype_of(self, handle: int) -> int:
        return int(self.library.TFE_TensorHandleDataType(handle))

    def shape_of(self, handle: int) -> tuple[int, ...]:
        rank = self.call("TFE_TensorHandleNumDims", handle)
        return tuple(self.call("TFE_TensorHandleDim", handle, axis) for axis in range(rank))

    def bytes_of(self, handle: int) -> bytes:
        """The raw value of a small real tensor."""
        tensor = self.call("TFE_TensorHandleResolve", handle)
        try:
            size = self.library.TF_TensorByteSize(tensor)
            return ctypes.string_at(self.library.TF_TensorData(tensor), size)
        finally:
            self.library.TF_DeleteTensor(tensor)

    def delete(self, handle: int) -> None:
        self.library.TFE_DeleteTensorHandle(handle)

    def kind_of(self, op: int) -> str:
        return str(self.call("TFE_OpGetName", op).decode())

    def inputs_of(self, op: int) -> list[int]:
        """The handles of an operation's inputs, lists flattened; borrowed."""
        count = self.call("TFE_OpGetFlatInputCount", op)
        return [int(self.call("TFE_OpGetFlatInput", op, index)) for index in range(count)]

    def attributes_of(self, op: int) -> bytes:
        """A serialized NameAttrList."""
        buffer = self.library.TF_NewBuffer()
        try:
            self.call("TFE_OpAttrsSerialize", self.library.TFE_OpGetAttrs(op), buffer)
            return ctypes.string_at(buffer.contents.data, buffer.contents.length)
        finally:
            self.library.TF_DeleteBuffer(buffer)

    def run(self, op: int, kind: str, inputs: Sequence[int], count: int, device: bytes = HOST) -> list[int]:
        """Run the operation for real, on the host, with other inputs."""
        return self._run(kind, inputs, count, device, lambda real: self._add_attributes(real, op))

    def compute(self, kind: str, inputs: Sequence[int], dtype: int | None = None, device: bytes = HOST) -> int:
        """Run an operation of our own, with one output."""

        def prepare(real: int) -> None:
            if dtype is not None:
                self.library.TFE_OpSetAttrType(real, b"dtype", dtype)

        return self._run(kind, inputs, 1, device, prepare)[0]

    def _add_attributes(self, real: int, op: int) -> None:
        self.library.TFE_OpAddAttrs(real, self.library.TFE_OpGetAttrs(op))

    def _run(
        self, kind: str, inputs: Sequence[int], count: int, device: bytes, prepare: Callable[[int], None]
    ) -> list[int]:
        real = self.call("TFE_NewOp", self.context, kind.encode())
        try:
            prepare(real)
            self.call("TFE_OpSetDevice", real, device)
            for handle in inputs:
                self.call("TFE_OpAddInput", real, handle)
            outputs, room = (c_void_p * max(count, 1))(), c_int(count)
            self.call("TFE_Execute", real, outputs, ctypes.byref(room))
            return [int(outputs[index] or 0) for index in range(room.value)]
        finally:
            self.library.TFE_DeleteOp(real)

    def infer_shapes(
        self, op: int, shapes: Sequence[tuple[int, ...]], values: Sequence[int | None]
    ) -> list[tuple[int, ...] | None]:
        """What TensorFlow's own shape function says; -1 for an unknown size, None for an unknown rank."""
        given = self.library.TF_NewShapeAndTypeList(len(shapes))
        tensors = (c_void_p * max(len(values), 1))()
        found = ctypes.POINTER(c_api.ShapeList)()
        try:
            for index, shape in enumerate(shapes):
                self.library.TF_ShapeAndTypeListSetShape(given, index, sizes(shape), len(shape))
            for index, value in enumerate(values):
                tensors[index] = None if value is None else self.call("TFE_TensorHandleResolve", value)
            self.call("TFE_InferShapes", op, given, tensors, None, None, ctypes.byref(found), None)
            items = [found.contents.items[index] for index in range(found.contents.num_items)]
            return [None if item.num_dims < 0 else tuple(item.dims[: item.num_dims]) for item in items]
        finally:
            self.library.TF_DeleteShapeAndTypeList(given)
            self.library.TF_DeleteShapeAndTypeList(found)
            for tensor in filter(None, tensors):
                self.library.TF_DeleteTensor(tensor)

    def _rank(self, tensor: int, _status: int) -> int:
        return len(self.handler.shape(tensor))

    def _dimension(self, tensor: int, axis: int, _status: int) -> int:
        return self.handler.shape(tensor)[axis]

    def _free(self, data: int, _length: int, _argument: int) -> None:
        self.arrays.pop(data, None)

    def _drop(self, tensor: int) -> None:
        self.handler.drop(tensor)

    def _execute(self, op: int, count: Any, outputs: Any, status: int, _info: int) -> None:
        try:
            handles = self.handler.execute(op, count[0])
            count[0] = len(handles)
            for index, handle in enumerate(handles):
                outputs[index] = handle
        except Exception as error:  # noqa: BLE001  nothing may pass through TensorFlow's C++ frames
            self._report(error, status)

    def _copy_in(self, _context: int, handle: int, status: int, _info: int) -> int:
        try:
            return self.handler.copy_in(handle)
        except Exception as error:  # noqa: BLE001  as above
            return self._report(error, status)

    def _copy_out(self, _context: int, handle: int, _target: bytes, status: int, _info: int) -> int:
        try:
            return self.handler.copy_out(handle)
        except Exception as error:  # noqa: BLE001  as above
            return self._report(error, status)

    def _report(self, error: Exception, status: int) -> int:
        code, message = INTERNAL, f"Legroom: {type(error).__name__}: {error}"
        if isinstance(error, StatusError):
            code, message = error.code, error.message
        else:
            self.handler.fail(error)
        self.library.TF_SetStatus(status, code, message.encode())
        return 0


def sizes(shape: tuple[int, ...]) -> Any:
    return (c_int64 * max(len(shape), 1))(*shape)
