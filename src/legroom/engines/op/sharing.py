"""Which operations hand on a buffer instead of making one: read from TensorFlow's kernels and tried one by one on the CPU.

A kernel may take an input's buffer over for an output if no one else reads it (`may_reuse`; the caller knows who reads what), or its
output may always be the input's buffer, or a part of it (`shares`). What was seen on the CPU holds on a GPU as well, where the
kernels are the same templates, but for those in `CPU_ONLY`.
"""

from math import prod
from typing import Any, Literal

from legroom.engines.op.ops import Array, Op
from legroom.engines.op.sharing_kinds import (
    ALIASES,
    BINARY,
    COPY_ON_READ,
    CPU_ONLY,
    FIRST_INPUT,
    HOST,
    HOST_INT32,
    KNOWN,
    REDUCTIONS,
    UPDATES,
)
from legroom.records.step import dtype_bytes

__all__ = ["COPY_ON_READ", "KNOWN", "holds", "lends", "may_reuse", "on_host", "shares", "updates"]

Device = Literal["cpu", "gpu"]
ALIGNMENT = 64  # bytes: a part of a buffer is handed on only if it starts at a multiple of this


def may_reuse(op: Op, output: int, device: Device = "cpu") -> tuple[int, ...]:
    """The inputs whose buffer this output takes over if no one else reads them and dtype and size fit, as they are tried."""
    if device == "gpu" and op.kind in CPU_ONLY:
        return ()
    if op.kind in FIRST_INPUT:
        return (0,) if output == 0 else ()
    if op.kind in BINARY:
        return 0, 1
    match op.kind:
        case "AddN":
            return tuple(range(len(op.inputs))) if len(op.inputs) > 1 else ()
        case "Select" | "SelectV2":
            return 1, 2
        case "SoftmaxCrossEntropyWithLogits" | "SparseSoftmaxCrossEntropyWithLogits":
            return (0,) if output == 1 else ()
        case "FusedBatchNorm" | "FusedBatchNormV2" | "FusedBatchNormV3" | "_FusedBatchNormEx":
            return {1: (3,), 2: (4,)}.get(output, ())  # the image is tried as well, but the kernel itself reads it
        case "Qr" | "Svd" | "SelfAdjointEigV2":
            return (0,)
    return ()


def shares(op: Op, output: int, device: Device = "cpu") -> int | None:
    """The input whose buffer this output is, or is a part of. A variable's buffer is that of its handle.

    `op.attributes["values"]` may hold the values of small inputs by position (a permutation, strides): they settle what shapes
    leave open, and what is left open counts as not shared. A variable in copy-on-read mode (see `COPY_ON_READ`) is copied by
    ReadVariableOp after all.
    """
    if op.kind in ALIASES:
        return ALIASES[op.kind] if op.kind != "IdentityN" else output
    whole = len(op.outputs) == 1 and bool(op.inputs) and op.inputs[0].shape == op.outputs[0].shape
    match op.kind:
        case "Cast":
            return 0 if op.inputs[0].dtype == op.outputs[0].dtype else None
        case "Pack" | "AddN":
            return 0 if len(op.inputs) == 1 else None
        case "Pad" | "PadV2" | "Tile" | "BroadcastTo":
            return 0 if whole else None
        case "Select":
            return 1 if op.inputs[0].shape == () != op.inputs[1].shape else None
        case "Unpack":
            return 0 if op.attributes.get("axis", 0) == 0 and _rows_aligned(op.inputs[0]) else None
        case "Split":
            return 1 if len(op.outputs) == 1 or _is_rows(op.inputs[1], op.outputs[output]) else None
        case "SplitV":
            return 0 if len(op.outputs) == 1 or _is_rows(op.inputs[0], op.outputs[output]) else None
        case "Slice":
            return 0 if whole or _is_slice(op) else None
        case "StridedSlice":
            return 0 if _is_strided_rows(op) else None
        case "Transpose" | "ConjugateTranspose":
            return 0 if _keeps_order(op) else None
    if op.kind in REDUCTIONS and prod(op.inputs[0].shape) == prod(op.outputs[0].shape):
        return 0
    return None


def lends(op: Op, device: Device = "cpu") -> tuple[int, ...]:
    """The inputs whose buffer serves as a temporary of the same size if no one else reads them: one temporary less."""
    return (1,) if device == "cpu" and op.kind in ("MaxPoolGrad", "MaxPoolGradV2") else ()


def holds(op: Op) -> tuple[int, ...]:
    """The inputs whose buffers live on in a list or a variable that the operation writes to. Other writes are copies."""
    kinds = {"TensorListSetItem": (0, 2), "TensorListPushBack": (0, 1), "AssignVariableOp": (1,)}
    return kinds.get(op.kind, ())


def updates(op: Op) -> tuple[int, ...]:
    """The inputs, variables, that the operation changes in place.

    Where someone still holds what was read of such a variable, or where it is in copy-on-read mode and the update is not a
    sparse one, the kernel first makes a copy of it, which takes the variable's place.
    """
    if op.kind in UPDATES:
        return UPDATES[op.kind]
    if op.kind.startswith(("ResourceScatter", "ResourceStridedSliceAssign")):
        return (0,)
    return ()


def on_host(op: Op, output: int) -> bool:
    """Whether an operation placed on a GPU makes this output in host memory: shapes, and most arithmetic on int32."""
    return op.kind in HOST or (op.kind in HOST_INT32 and op.outputs[output].dtype == "int32")


def _values(op: Op, position: int) -> tuple[int, ...] | None:
    value: Any = op.attributes.get("values", {}).get(position)
    return None if value is None else tuple(value) if isinstance(value, (tuple, list)) else (int(value),)


def _rows_aligned(array: Array) -> bool:
    return dtype_bytes(array.dtype, prod(array.shape[1:])) % ALIGNMENT == 0


def _is_rows(array: Array, part: Array) -> bool:
    """Whether the part can only be some first-dimension rows of the array, and these start at aligned addresses."""
    return array.shape[1:] == part.shape[1:] and array.shape[:1] != part.shape[:1] and _rows_aligned(array)


def _is_slice(op: Op) -> bool:
    array, part = op.inputs[0], op.outputs[0]
    if len(array.shape) != 1:
        return _is_rows(array, part)
    begin = _values(op, 1)
    ends = None if begin is None else (begin[0], part.shape[0])
    return ends is not None and not any(dtype_bytes(array.dtype, end) % ALIGNMENT for end in ends)


def _is_strided_rows(op: Op) -> bool:
    """Whether a slice takes whole rows one after the other, or everything."""
    array, part = op.inputs[0], op.outputs[0]
    strides = _values(op, 3)
    if (strides is not None and any(stride != 1 for stride in strides)) or not array.shape:
        return False
    if prod(array.shape) == prod(part.shape):
        return True
    if len(array.shape) == 1:
        begin, end = _values(op, 1), _values(op, 2)
        if begin is None or end is None or op.attributes.get("shrink_axis_mask", 0):
            return False
        return not any(dtype_bytes(array.dtype, place) % ALIGNMENT for place in (begin[0], begin[0] + part.shape[0]))
    if op.attributes.get("shrink_axis_mask", 0) not in (0, 1) or not _rows_aligned(array):
        return False
    rest = [size for size in array.shape[1:] if size != 1]
    taken = [size for size in part.shape if size != 1]
    if op.attributes.get("shrink_axis_mask", 0):
        return taken == rest
    return taken[len(taken) - len(rest) :] == rest and len(taken) - len(rest) in (0, 1)


def _keeps_order(op: Op) -> bool:
    """Whether a transposition moves nothing but dimensions of one element."""
    shape, permutation = op.inputs[0].shape, _values(op, 1)
    long = [i for i, size in enumerate(shape) if size != 1]
    if permutation is None:
        return len(long) <= 1
    return [axis % len(shape) for axis in permutation if shape[axis] != 1] == long
