"""Values of variables to go back to: held where they are, without a copy, or copied to the host.

A variable that is read gives its own memory; an assignment then puts other memory in its place, and an addition in place makes
a copy first (`PrepareToUpdateVariable` in TensorFlow's training_op_helpers). So to hold the values is to hold the tensors, and
to go back takes no memory at all. It costs a copy of what is written meanwhile: right for what is small.

Private names used, tested with TensorFlow 2.21.0: `EagerTensor._numpy`, which gives a CPU's tensor itself and not a copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


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
    """What variables were, in the host's memory."""

    variables: Sequence[Any]
    arrays: Sequence[Any]

    def put_back(self) -> None:
        """Write the values into the memory that the variables have, where it can be reached; it may be the last there is."""
        for variable, array in zip(self.variables, self.arrays, strict=True):
            overwrite(variable, array)


def copy(variables: Sequence[Any]) -> Copied:
    """Their values in NumPy arrays: nothing is allocated on the device."""
    return Copied(variables, [variable.numpy() for variable in variables])


def overwrite(variable: Any, array: Any) -> None:
    """Bit by bit, in place on a CPU; elsewhere through one new tensor, or row by row where there is no room for it."""
    import tensorflow as tf

    value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
    if value.device.endswith("CPU:0"):
        place = value._numpy()
        if getattr(place, "flags", None) is not None and place.flags.writeable and place.shape == array.shape:
            place[...] = array
            return
    del value
    try:
        variable.assign(array)
    except tf.errors.ResourceExhaustedError:
        if not array.ndim:
            raise
        for row in range(array.shape[0]):
            tf.raw_ops.ResourceStridedSliceAssign(
                ref=variable.handle, begin=[row], end=[row + 1], strides=[1], value=array[row : row + 1]
            )


def size_of(variables: Sequence[Any]) -> int:
    return sum(int(variable.shape.num_elements() or 0) * int(variable.dtype.size) for variable in variables)
