"""What the fake device does with each operation: note it, and answer with tensors that have a shape and no memory.

Small values that do not depend on data (shapes, loop counters, learning rates) are really computed on the host, so that
Python code which asks for them goes on. All else is unknown, and reads as zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from legroom.engines.op import stack
from legroom.engines.op.fake_device import FakeDevice
from legroom.engines.op.ops import HANDLES, Array, Op
from legroom.engines.op.signature import INDICES, UP_TO_INPUT, Call, Signature, Signatures, dtype_name
from legroom.engines.op.trace import Dropped, Event, Ran, Resident
from legroom.engines.op.variables import Variables

SMALL_BYTES = 2048  # values up to here are computed for real
CONSTANT = "_EagerConst"  # a value of Python's or NumPy's becomes a tensor of the device
BATCH = "Empty"  # the operation that makes a batch
SHAPES = ("Shape", "ShapeN", "Size", "Rank")
TRUE_OF_ZEROS = ("All", "IsFinite", "Equal", "LessEqual", "GreaterEqual")
POINTERS = ("resource", "variant")


@dataclass(slots=True)
class Fake:
    """A tensor of the device. `value` is the handle of a real tensor, if the value is known."""

    array: Array
    dtype: int
    kind: str  # of the operation that made it
    value: int | None
    noted: bool


class Recorder:
    """The handler of the fake device. It records while `events` is a list."""

    def __init__(self) -> None:
        self.device = FakeDevice(self)
        self.signatures = Signatures(self.device)
        self.variables = Variables(self)
        self.fakes: dict[int, Fake] = {}
        self.numbers: dict[int, int] = {}  # of the fakes that live, by handle
        self.handles: dict[int, int] = {}  # the other way round
        self.last_number = 0
        self.clear()
        self.events: list[Event] | None = None

    def clear(self) -> None:
        """Begin anew: of what is alive only batches are there for the step, until it uses something else."""
        self.started = self.last_number
        batches = {number: fake.array for number, fake in self.fakes.items() if fake.kind == BATCH}
        self.residents = {number: Resident(array, "batch") for number, array in batches.items()}
        self.outside: dict[tuple[int, Array], int] = {}  # numbers of real tensors that the step uses
        self.notes: dict[str, None] = {}
        self.failure: Exception | None = None
        self.writing = False  # variables are being created, and are really written
        self.variables.forget()

    # What the device calls.

    def execute(self, op: int, count: int) -> list[int]:
        kind = self.device.kind_of(op)
        handles = self.device.inputs_of(op)
        arrays = tuple(self.array(handle) for handle in handles)
        if any(array.dtype in POINTERS for array in arrays):
            return self.variables.use(op, kind, handles, count)
        if kind == CONSTANT:
            return [self.copy_in(handles[0])]
        if kind in SHAPES:
            return self.answer_shape(kind, handles, arrays, self.signatures.attributes(op))
        call = self.call(op, kind, handles, arrays, count)
        signature = self.signatures.find(call)
        if any(array.dtype in POINTERS for array in signature.outputs):
            return self.variables.really(op, kind, handles, count)
        return self.answer(signature, handles, self.compute(call, signature))

    def copy_in(self, handle: int) -> int:
        array, value = self.array(handle), self.value(handle)
        signature = Signature(CONSTANT, {"T": array.dtype}, (array,), False, False)
        return self.answer(signature, [], [None if value is None else self.device.share(value)])[0]

    def copy_out(self, handle: int) -> int:
        fake = self.fakes[self.numbers[handle]]
        if fake.value is None and self.events is not None and not self.writing:
            _, line = stack.layer_and_line()
            whose = "the batch" if fake.kind == BATCH else fake.kind
            given = "True" if is_true(fake) else "zero"
            text = f"{line or 'The step'} asks for a value of {whose} that depends on data; {given} was given."
            self.notes[text] = None
        return self.materialize(handle)

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self.fakes[tensor].array.shape

    def drop(self, tensor: int) -> None:
        fake = self.fakes.pop(tensor)
        self.numbers.pop(self.handles.pop(tensor, 0), None)
        if fake.value is not None:
            self.device.delete(fake.value)
        if self.events is not None and fake.noted and (tensor > self.started or tensor in self.residents):
            self.events.append(Dropped(tensor))

    def fail(self, error: Exception) -> None:
        self.failure = self.failure or error

    # Tensors.

    def new_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def array(self, handle: int) -> Array:
        number = self.numbers.get(handle)
        if number is not None:
            return self.fakes[number].array
        return Array(self.device.shape_of(handle), dtype_name(self.device.dtype_of(handle)))

    def value(self, handle: int) -> int | None:
        """The handle of a real tensor with this one's value, if that is known and small; borrowed."""
        number = self.numbers.get(handle)
        if number is not None:
            return self.fakes[number].value
        return handle if is_small(self.array(handle)) else None

    def owned(self, handle: int) -> int | None:
        """Keep a real tensor if it is small; let go of it otherwise."""
        if is_small(self.array(handle)):
            return handle
        self.device.delete(handle)
        return None

    def number(self, handle: int) -> int:
        """The number of an input: a tensor of the step, a variable, or a real tensor from outside."""
        number = self.numbers.get(handle)
        if number is not None:
            if number <= self.started and number not in self.residents:
                self.residents[number] = Resident(self.fakes[number].array, "constant")
            return number
        variable = self.variables.met.get(handle)
        if variable is not None:
            return variable.number
        array = self.array(handle)
        if (handle, array) not in self.outside:
            self.outside[handle, array] = self.new_number()
            self.residents[self.last_number] = Resident(array, "constant")
        return self.outside[handle, array]

    def materialize(self, handle: int) -> int:
        """A new handle of a real tensor: the value, or zeros."""
        import numpy as np

        number = self.numbers.get(handle)
        if number is None:
            return self.device.share(handle)
        fake = self.fakes[number]
        if fake.value is not None:
            return self.device.share(fake.value)
        value = np.ones(fake.array.shape, np.bool_) if is_true(fake) else None
        return self.device.host_handle(value, fake.array.shape, fake.dtype)

    # Operations.

    def call(self, op: int, kind: str, handles: list[int], arrays: tuple[Array, ...], count: int) -> Call:
        """Values matter to shapes if they are integers, or if nothing else goes in."""
        values = [self.value(handle) for handle in handles]
        certain = tuple(value for value in values if value is not None)
        known = len(certain) == len(values)
        given = [
            value if (known or array.dtype in INDICES) and array.dtype not in HANDLES else None
            for value, array in zip(values, arrays, strict=True)
        ]
        raw = tuple(None if value is None else self.device.bytes_of(value) for value in given)
        return Call(op, kind, arrays, tuple(given), raw, certain if known else None, count)

    def compute(self, call: Call, signature: Signature) -> list[int | None]:
        """The values of the outputs if they follow from known ones and are small."""
        small = signature.open or all(is_small(array) for array in signature.outputs)
        if call.known is None or signature.stateful or not small:
            return [None] * len(signature.outputs)
        return [*self.device.run(call.op, call.kind, call.known, call.count)]

    def answer_shape(
        self, kind: str, handles: list[int], arrays: Sequence[Array], attributes: dict[str, Any] | None = None
    ) -> list[int]:
        """Shapes are known without their tensors' values."""
        import numpy as np
        import tensorflow as tf

        dtype = tf.dtypes.as_dtype(attributes["out_type"].type if attributes and "out_type" in attributes else tf.int32)
        shapes = [array.shape for array in arrays]
        values: list[Any] = {"Size": [prod(shapes[0])], "Rank": [len(shapes[0])]}.get(kind, shapes)
        real = [np.asarray(value, dtype.as_numpy_dtype) for value in values]
        outputs = tuple(Array(value.shape, dtype.name) for value in real)
        signature = Signature(kind, {"out_type": dtype.name}, outputs, False, False)
        return self.answer(
            signature, handles, [self.device.host_handle(value, value.shape, dtype.as_datatype_enum) for value in real]
        )

    def answer(self, signature: Signature, handles: Sequence[int], values: Sequence[int | None]) -> list[int]:
        """Make the outputs, whose values are theirs from now on, and write the operation down."""
        numbers, results = [], []
        for array, value in zip(signature.outputs, values, strict=True):
            actual = self.array(value) if signature.open and value is not None else array
            if signature.open and value is None:
                size = "the largest possible" if signature.kind in UP_TO_INPUT else "1"
                self.notes[f"The size of what {signature.kind} makes depends on data: {size} was taken."] = None
            numbers.append(self.new_fake(actual, signature.kind, value))
            results.append(self.handles[numbers[-1]])
        if self.events is not None and not self.writing:
            layer, line = stack.layer_and_line()
            op = Op(
                f"{layer}/{signature.kind}" if layer else signature.kind,
                signature.kind,
                tuple(self.array(handle) for handle in handles),
                tuple(self.fakes[number].array for number in numbers),
                signature.attributes,
            )
            inputs = tuple(self.number(handle) for handle in handles)
            self.events.append(Ran(op, inputs, tuple(numbers), line))
        return results

    def new_fake(self, array: Array, kind: str, value: int | None) -> int:
        import tensorflow as tf

        dtype = int(tf.dtypes.as_dtype(array.dtype).as_datatype_enum)
        number = self.new_number()
        self.fakes[number] = Fake(array, dtype, kind, value, not self.writing)
        handle = self.device.new_handle(number, dtype)
        self.numbers[handle], self.handles[number] = number, handle
        return number


def is_small(array: Array) -> bool:
    return array.dtype not in POINTERS and array.size_bytes <= SMALL_BYTES


def is_true(fake: Fake) -> bool:
    return fake.array.dtype == "bool" and fake.kind in TRUE_OF_ZEROS
