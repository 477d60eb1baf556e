"""What the fake device does with variables and other resources.

A variable is really there; the step may look at it but not change it. What it writes is remembered, if it is small and
known, and read back until the recording ends. Iterators and tables are really used, with zeros for unknown inputs.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from legroom.engines.op import stack
from legroom.engines.op.fake_device import StatusError
from legroom.engines.op.ops import HANDLES, Array
from legroom.engines.op.signature import Signature
from legroom.engines.op.trace import Resident

if TYPE_CHECKING:
    from legroom.engines.op.recorder import Recorder

GATHERS = ("ResourceGather", "ResourceGatherNd")
STATE = ("Assign", "Resource", "Stateful", "Rng")  # how the kinds that write to a variable begin
SUMS = {"AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub"}
# float32, int32, int64, bfloat16, float16, bool, float64: what a variable is read as where nobody names its dtype.
DTYPES = (1, 3, 9, 14, 19, 10, 2)


@dataclass(slots=True)
class Variable:
    """A variable of the program. `value` is the handle of its value, or of what the step wrote, if known and small."""

    number: int
    array: Array
    value: int | None = None


class Variables:
    """The variables that a recording has met, by the address of their resource's handle."""

    def __init__(self, recorder: "Recorder") -> None:
        self.recorder = recorder
        self.device = recorder.device
        self.met: dict[int, Variable] = {}
        self.last: Variable | None = None

    def forget(self) -> None:
        for variable in self.met.values():
            self.keep(variable, None)
        self.met.clear()

    def use(self, op: int, kind: str, handles: list[int], count: int) -> list[int]:
        """Answer an operation that has a resource or a variant among its inputs."""
        attributes = self.recorder.signatures.attributes(op)
        dtype = next((attributes[name].type for name in ("dtype", "T") if name in attributes), 0)
        first = self.recorder.array(handles[0])
        variable = self.find(handles[0], dtype) if first.dtype == "resource" else None
        if self.recorder.writing and kind != "ReadVariableOp":
            return self.really(op, kind, handles, count)
        if variable is not None and kind in ("ReadVariableOp", "VariableShape", *GATHERS):
            return self.read(kind, variable, handles)
        if kind.startswith(STATE) or "Summary" in kind or self.recorder.signatures.is_function(kind):
            return self.write(op, kind, handles, count)
        return self.really(op, kind, handles, count)

    def read(self, kind: str, variable: Variable, handles: list[int]) -> list[int]:
        array, value = variable.array, variable.value
        if kind == "VariableShape":
            return self.recorder.answer_shape(kind, handles, [array])
        if kind in GATHERS:
            indices = self.recorder.array(handles[1]).shape
            outer, inner = (indices, 1) if kind == "ResourceGather" else (indices[:-1], indices[-1])
            array, value = Array((*outer, *array.shape[inner:]), array.dtype), None
        signature = Signature(kind, {"dtype": array.dtype}, (array,), False, True)
        return self.recorder.answer(signature, handles, [None if value is None else self.device.share(value)])

    def write(self, op: int, kind: str, handles: list[int], count: int) -> list[int]:
        """Note an operation that would change variables, and what they would be then."""
        arrays = tuple(self.recorder.array(handle) for handle in handles)
        for handle, array in zip(handles, arrays, strict=True):
            if array.dtype == "resource":
                self.find(handle, 0)
        call = self.recorder.call(op, kind, handles, arrays, count)
        signature = self.recorder.signatures.find(call)
        results = self.recorder.answer(signature, handles, [None] * len(signature.outputs))
        if not kind.startswith(STATE):
            return results
        value = self.recorder.value(handles[-1])
        for handle in handles:
            variable = self.met.get(handle)
            if variable is None or kind == "AssignVariableOp":
                continue
            both = variable.value is not None and value is not None and kind in SUMS
            self.keep(variable, self.device.compute(SUMS[kind], [variable.value or 0, value or 0]) if both else None)
        target = self.met.get(handles[0])
        if kind == "AssignVariableOp" and target is not None:
            self.keep(target, None if value is None else self.device.share(value))
        return results

    def really(self, op: int, kind: str, handles: list[int], count: int) -> list[int]:
        """Run it on the host; its results are tensors of the device, resources stay what they are."""
        inputs = [self.recorder.materialize(handle) for handle in handles]
        try:
            outputs = self.device.run(op, kind, inputs, count, b"")
        finally:
            for handle in inputs:
                self.device.delete(handle)
        arrays = [self.recorder.array(handle) for handle in outputs]
        if any(array.dtype in HANDLES for array in arrays):
            return outputs
        signature = Signature(kind, {}, tuple(arrays), False, True)
        return self.recorder.answer(signature, handles, [self.recorder.owned(handle) for handle in outputs])

    def find(self, handle: int, dtype: int) -> Variable | None:
        """The variable behind a resource; None if it is something else or has no value yet.

        An address that was met may be another variable's by now, but only of one that was created since.
        """
        if handle in self.met and not self.recorder.writing:
            return self.met[handle]
        value = self.current(handle, dtype)
        if value is None:
            return None
        array = self.recorder.array(value)
        number = self.recorder.new_number()
        self.recorder.residents[number] = Resident(array, "variable", stack.variable_name())
        self.met[handle] = self.last = Variable(number, array, self.recorder.owned(value))
        return self.last

    def current(self, handle: int, dtype: int) -> int | None:
        """A real tensor that shares the variable's memory."""
        for candidate in (dtype,) if dtype else DTYPES:
            try:
                return self.device.compute("ReadVariableOp", [handle], candidate, b"")
            except StatusError:
                continue
        return None

    def keep(self, variable: Variable, value: int | None) -> None:
        if variable.value is not None:
            self.device.delete(variable.value)
        variable.value = value
