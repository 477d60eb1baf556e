"""What each tensor of a trial is computed from: samples, their number, random numbers, gradients, variables that have changed.

Steps are tried out eagerly, so that every operation is heard: what it gives comes from whatever it takes. What goes through
NumPy or Python comes from nothing.

Private names used, tested with TensorFlow 2.21.0: a tensor's memory is read by Python's buffer protocol.
"""

import ctypes
import re
import sys
import weakref
from collections.abc import Iterable, Sequence
from enum import IntFlag
from types import FrameType
from typing import Any

from legroom.changes.bends import KINDS, Bends
from legroom.changes.custom_models import native
from legroom.changes.forced import Forced, Shape

ONLY_SIZES = frozenset(("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"))
SHARED = 4096  # entries of a variable that may lie in memory with others
CHECKING = ("check_ops", "control_flow_assert", "while_loop")  # assertions fail, and loops do not end, by other truths
DRAWS = re.compile(r"Random|Multinomial|Normal|Uniform|PyFunc")
ANEW = re.compile(r"^(?!Stateless).*(Random|Multinomial|Normal|Uniform|PyFunc|^Rng)")  # others, each time


class Source(IntFlag):
    """What a tensor is computed from."""

    NOTHING = 0
    SAMPLES = 1
    SIZES = 2  # how many samples there are
    DRAWN = 4  # random numbers
    GRADIENTS = 8  # of the whole batch, as the last slice has them
    CHANGED = 16  # variables that were updated or assigned before
    ANEW = 32  # random numbers, or seeds of such, that are others each time


OF_A_SLICE = Source.SAMPLES | Source.SIZES | Source.DRAWN


class Flow:
    """Hears every operation of a trial."""

    def __init__(self, batch: Sequence[Any], forced: Forced | None = None, bends: Bends | None = None) -> None:
        self.known: dict[int, tuple[Any, Source]] = {}
        self.forced = forced
        self.bends = bends or Bends()
        self.compared: list[Shape] = []  # of the comparisons of samples that were made
        self.changed: dict[int, Any] = {}  # variables
        self.looking = False  # at memory, by operations of its own
        self.made_bytes = 0  # in all, as if nothing had been let go
        self.mark(batch, Source.SAMPLES)

    def heard(self, op: str | bytes, inputs: Any, _: Any, outputs: Any, *__: Any, **about: Any) -> None:
        if about.get("graph") is not None or self.looking:
            return
        op = op.decode() if isinstance(op, bytes) else op
        sources = Source.NOTHING
        for tensor in inputs:
            sources |= self.of_tensor(tensor) or self.of_unknown(tensor)
        if op in ONLY_SIZES:
            sources = Source.SIZES if sources & OF_A_SLICE else Source.NOTHING
        elif DRAWS.search(op):
            sources |= Source.DRAWN
        if ANEW.search(op):
            sources |= Source.ANEW
        for tensor in outputs or ():
            self.put(tensor, sources)
            self.made_bytes += bytes_of(tensor)
        if sources & Source.SAMPLES and outputs:
            self.heard_of_samples(op, inputs, outputs)

    def heard_of_samples(self, op: str, inputs: Any, outputs: Any) -> None:
        truths = is_comparison(inputs, outputs)
        if (truths or op in KINDS or outputs[0].dtype.name == "bool") and is_checking():
            return
        if truths:
            if self.forced is not None:
                self.forced.put(len(self.compared), outputs[0])
            self.compared.append(tuple(outputs[0].shape))
        made = self.bends.meet(op, inputs, outputs[0])
        if made is not None:
            overwrite(outputs[0], made)

    def put(self, tensor: Any, sources: Source) -> None:
        if sources:
            self.known[id(tensor)] = (weakref.ref(tensor), sources)
        else:
            self.known.pop(id(tensor), None)

    def of_tensor(self, tensor: Any) -> Source:
        known = self.known.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else Source.NOTHING

    def of_unknown(self, tensor: Any) -> Source:
        """TensorFlow reads a variable without a word where an operation is given it as it is: what is read is the variable's own memory."""
        if not self.changed or tensor.dtype.name == "resource":
            return Source.NOTHING
        self.looking = True
        try:
            place = memory_of(tensor)
            same = place and any(place == memory_of(one) for one in self.changed.values())
        finally:
            self.looking = False
        return Source.CHANGED if same else Source.NOTHING

    def change(self, variables: Iterable[Any]) -> None:
        """These were updated or assigned."""
        known = [native(variable) for variable in variables]
        self.mark(known, Source.CHANGED)
        self.changed |= {id(variable): variable for variable in known}
        for variable in known:
            move(variable)

    def of(self, leaf: Any) -> Source:
        """Of a tensor, a sparse gradient or a variable."""
        sources = Source.NOTHING
        for tensor in tensors_of(leaf):
            sources |= self.of_tensor(tensor)
        return sources

    def mark(self, leaves: Sequence[Any], sources: Source) -> None:
        for leaf in leaves:
            for tensor in tensors_of(leaf):
                self.put(tensor, sources)

    def computes_again(self, leaf: Any) -> bool:
        """Whether samples have met a variable that was changed: it is not yet, for slices before the last."""
        sources = self.of(leaf)
        return bool(sources & Source.CHANGED) and bool(sources & OF_A_SLICE)

    def of_slice(self, leaf: Any) -> bool | None:
        """Whether samples are in this: if not, the last slice has what the whole batch has. None where it cannot be told."""
        sources = self.of(leaf)
        if not tensors_of(leaf) or sources & OF_A_SLICE == Source.SIZES:
            return None
        return bool(sources & OF_A_SLICE)


def bytes_of(tensor: Any) -> int:
    known = getattr(tensor, "shape", None)
    return (
        0 if known is None or known.num_elements() is None else int(known.num_elements()) * int(tensor.dtype.size or 0)
    )


def tensors_of(leaf: Any) -> list[Any]:
    """The tensors that an array consists of, a variable's handle; none for what is no tensor."""
    import keras
    import tensorflow as tf

    if isinstance(leaf, tf.IndexedSlices):
        return [leaf.values, leaf.indices]
    if isinstance(leaf, keras.Variable):
        leaf = leaf.value
    if isinstance(leaf, tf.Variable):
        return [leaf.handle]
    return [leaf] if isinstance(leaf, tf.Tensor) else []


def memory_of(value: Any) -> int:
    """Where a tensor, or what a variable holds, lies on the CPU; 0 elsewhere."""
    import numpy as np
    import tensorflow as tf

    if isinstance(value, tf.Variable):
        value = tf.raw_ops.ReadVariableOp(resource=value.handle, dtype=value.dtype)
    if not value.shape.num_elements() or "CPU" not in value.device or not value.dtype.is_numpy_compatible:
        return 0
    try:
        return int(np.asarray(memoryview(value)).__array_interface__["data"][0])
    except (TypeError, ValueError, BufferError):  # of a type that Python has no word for, bfloat16
        return 0


def overwrite(tensor: Any, values: Any) -> None:
    """In its own memory, since eager operations cannot be answered in another way; bfloat16 in that of a view of it."""
    import numpy as np
    import tensorflow as tf

    place = memory_of(tf.bitcast(tensor, tf.uint16) if tensor.dtype == tf.bfloat16 else tensor)
    if place:
        held = np.ascontiguousarray(values)
        ctypes.memmove(place, held.ctypes.data, held.nbytes)


def is_checking() -> bool:
    """Whether the operation that is heard is one of an assertion, or of a loop over it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith("tensorflow.python.ops.") and name.rpartition(".")[2] in CHECKING:
            return True
        frame = frame.f_back
    return False


def move(variable: Any) -> None:
    """To memory of its own: a number begins in that of a constant, and biases that are zero in one that they share."""
    import tensorflow as tf

    if variable.shape.num_elements() and variable.shape.num_elements() <= SHARED and variable.dtype.is_numpy_compatible:
        held = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
        tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tf.raw_ops.DeepCopy(x=held))


def is_comparison(inputs: Any, outputs: Any) -> bool:
    """Whether something else than truths gave truths."""
    import tensorflow as tf

    if not inputs or not outputs or outputs[0].dtype != tf.bool or inputs[0].dtype == tf.bool:
        return False
    return bool(outputs[0].shape.rank)
