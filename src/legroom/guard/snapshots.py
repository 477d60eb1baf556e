"""Values of variables to go back to: held where they are, without a copy, or copied to the host.

A variable that is read gives its own memory; an assignment then puts other memory in its place, and an addition in place makes
a copy first (`PrepareToUpdateVariable` in TensorFlow's training_op_helpers). So to hold the values is to hold the tensors, and
to go back takes no memory at all. It costs a copy of what is written meanwhile: right for what is small.

Private names used, tested with TensorFlow 2.21.0: `EagerTensor._numpy`, which gives a CPU's tensor itself and not a copy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from legroom.units import KIB

PIECE_BYTES = 256 * KIB  # what is written at once where the device's memory cannot be reached


@dataclass(frozen=True, slots=True)
class Held:
    """What variables were, by reference."""

    variables: Sequence[Any]
    tensors: Sequence[Any]

    def put_back(self) -> None:
        import tensorflow as tf

        for variable, tensor in zip(self.variables, self.tensors, strict=True):
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tensor)

    def without(self, variables: Sequence[Any]) -> "Held":
        """The same, with these let go."""
        gone = {id(variable) for variable in variables}
        kept = [pair for pair in zip(self.variables, self.tensors, strict=True) if id(pair[0]) not in gone]
        return Held([variable for variable, _ in kept], [tensor for _, tensor in kept])


def hold(variables: Sequence[Any]) -> Held:
    """Their values now; they must not change while nobody holds this. Variables are TensorFlow's own."""
    import tensorflow as tf

    read = tf.raw_ops.ReadVariableOp
    return Held(variables, [read(resource=variable.handle, dtype=variable.dtype) for variable in variables])


@dataclass(frozen=True, slots=True)
class Copied:
    """What variables were, in the host's memory; on a GPU with a little of its memory, so that there is a way back."""

    variables: Sequence[Any]
    arrays: Sequence[Any]
    reserve: list[Any] = field(default_factory=list)

    def keep_a_way(self) -> None:
        """An out-of-memory error where a GPU has not even the little left that the way back takes."""
        import tensorflow as tf

        if any(not variable.device.endswith("CPU:0") for variable in self.variables):
            self.reserve.append(tf.raw_ops.Empty(shape=[PIECE_BYTES], dtype=tf.uint8, init=False))

    def put_back(self) -> None:
        """Write the values into the memory that the variables have: it may be the last there is."""
        self.reserve.clear()
        for variable, array in zip(self.variables, self.arrays, strict=True):
            overwrite(variable, array)


def copy(variables: Sequence[Any]) -> Copied:
    """Their values in NumPy arrays: nothing is allocated on the device."""
    return Copied(variables, [variable.numpy() for variable in variables])


def overwrite(variable: Any, array: Any) -> None:
    """Bit by bit, in place: as the host's own memory on a CPU, elsewhere piece by piece through a small tensor.

    Elsewhere the variable is not read: one that was written piece by piece before is copied when it is read.
    """
    import tensorflow as tf

    if variable.device.endswith("CPU:0"):
        place = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)._numpy()
        if getattr(place, "flags", None) is not None and place.flags.writeable and place.shape == array.shape:
            place[...] = array
            return
    if array.nbytes <= PIECE_BYTES:
        variable.assign(array)
        return
    for box in boxes(array.shape, PIECE_BYTES // array.itemsize):
        begin, end = [side.start for side in box], [side.stop for side in box]
        tf.raw_ops.ResourceStridedSliceAssign(
            ref=variable.handle, begin=begin, end=end, strides=[1] * len(box), value=array[box]
        )


def boxes(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """An array of this shape in parts of at most so many numbers: runs along one axis, whole in those behind it."""
    axis = next(axis for axis in range(len(shape)) if prod(shape[axis + 1 :]) <= most)
    step = max(most // max(prod(shape[axis + 1 :]), 1), 1)
    for outer in product(*(range(size) for size in shape[:axis])):
        for start in range(0, shape[axis], step):
            run = slice(start, min(start + step, shape[axis]))
            yield (*(slice(at, at + 1) for at in outer), run, *(slice(0, size) for size in shape[axis + 1 :]))


def size_of(variables: Sequence[Any]) -> int:
    return sum(int(variable.shape.num_elements() or 0) * int(variable.dtype.size) for variable in variables)
