"""Lists of tensors (TensorList) while a graph is laid out: which tensors a list holds, and what its ops read and make."""

from typing import TYPE_CHECKING, Any

from legroom.engines.op.ops import Array, Op
from legroom.engines.op.templates import Template

if TYPE_CHECKING:
    from legroom.engines.op.unroll import Unroller

LIST_KINDS = frozenset(
    (
        *("EmptyTensorList", "TensorListReserve", "TensorListPushBack", "TensorListPopBack", "TensorListGetItem"),
        *("TensorListSetItem", "TensorListStack", "TensorListFromTensor", "TensorListLength", "TensorListElementShape"),
        *("TensorListResize", "TensorListConcatV2", "TensorListGather"),
    )
)


class Lists:
    """The lists of one step: the variant tensor that stands for a list → the tensors it holds (None: not set yet)."""

    def __init__(self, unroller: "Unroller") -> None:
        self.unroller = unroller
        self.elements: dict[int, list[int | None]] = {}

    def held(self, tensor: int) -> list[int]:
        """All tensors that live as long as this one does."""
        return [tensor, *(i for i in self.elements.get(tensor, ()) if i is not None)]

    def new(self, elements: list[int | None]) -> int:
        tensor = self.unroller.sizes.add(Array((), "variant"))
        self.elements[tensor] = elements
        return tensor

    def lay_out(self, template: Template, inputs: list[int], after: tuple[int, ...]) -> list[int]:
        """The op's outputs; nodes are added only for what really allocates."""
        kind, unroller = template.kind, self.unroller
        elements = self.elements.get(inputs[0], []) if inputs else []
        value = unroller.values.get
        if kind == "EmptyTensorList":
            return [self.new([])]
        if kind == "TensorListReserve":
            return [self.new([None] * int(value(inputs[1], 0)))]
        if kind == "TensorListResize":
            size = int(value(inputs[1], len(elements)))
            return [self.new((elements + [None] * size)[:size])]
        if kind == "TensorListPushBack":
            return [self.new([*elements, inputs[1]])]
        if kind == "TensorListPopBack":
            last = elements[-1] if elements else None
            return [self.new(elements[:-1]), self.filled(template, last, 1, inputs, after)]
        if kind == "TensorListGetItem":
            index = value(inputs[1])
            found = elements[int(index)] if index is not None and -len(elements) <= int(index) < len(elements) else None
            return [self.filled(template, found, 0, inputs, after)]
        if kind == "TensorListSetItem":
            changed = list(elements)
            index = int(value(inputs[1], 0))
            changed += [None] * (index + 1 - len(changed))
            changed[index] = inputs[2]
            return [self.new(changed)]
        if kind == "TensorListFromTensor":
            return [self.split(template, inputs[0], after)]
        if kind == "TensorListLength":
            return [self.known(len(elements), "int32")]
        if kind == "TensorListElementShape":
            return [self.known(self.element_shape(elements), template.dtypes[0])]
        if kind in ("TensorListStack", "TensorListGather", "TensorListConcatV2"):
            return self.joined(template, elements, after)
        return self.passed(template, inputs, after)

    def element_shape(self, elements: list[int | None]) -> tuple[int, ...]:
        return next((self.unroller.tensors[i].shape for i in elements if i is not None), ())

    def known(self, value: Any, dtype: str) -> int:
        import numpy as np

        array = np.asarray(value, dtype)
        tensor = self.unroller.sizes.add(Array(array.shape, dtype))
        self.unroller.values[tensor] = array
        return tensor

    def filled(
        self, template: Template, found: int | None, position: int, inputs: list[int], after: tuple[int, ...]
    ) -> int:
        """The element itself; one that was never set is made of zeros."""
        if found is not None:
            return found
        array = template.arrays[position] or Array(
            self.element_shape(self.elements.get(inputs[0], [])), template.dtypes[position]
        )
        return self.made(template, (), [array], after)[0]

    def made(
        self, template: Template, inputs: tuple[int, ...], arrays: list[Array], after: tuple[int, ...]
    ) -> list[int]:
        unroller = self.unroller
        outputs = [unroller.sizes.add(array) for array in arrays]
        given = tuple(unroller.tensors[i] for i in inputs)
        unroller.add_node(
            Op(template.name, template.kind, given, tuple(arrays), template.attributes), inputs, tuple(outputs), after
        )
        return outputs

    def split(self, template: Template, tensor: int, after: tuple[int, ...]) -> int:
        array = self.unroller.tensors[tensor]
        count = array.shape[0] if array.shape else 0
        parts = self.made(template, (tensor,), [Array(array.shape[1:], array.dtype)] * count, after)
        return self.new(list(parts))

    def joined(self, template: Template, elements: list[int | None], after: tuple[int, ...]) -> list[int]:
        inputs = tuple(i for i in elements if i is not None)
        shape, dtype = self.element_shape(elements), template.dtypes[0]
        whole = (len(elements), *shape)
        if template.kind == "TensorListConcatV2":
            whole = (sum(self.unroller.tensors[i].shape[0] for i in inputs), *shape[1:])
        arrays = [Array(whole, dtype), *(Array((len(elements),), name) for name in template.dtypes[1:])]
        return self.made(template, inputs, arrays, after)

    def passed(self, template: Template, inputs: list[int], after: tuple[int, ...]) -> list[int]:
        """Ops that work on any variant: a list is passed on, added to another, or copied as zeros."""
        lists = [self.elements[i] for i in inputs if i in self.elements]
        if template.kind == "ZerosLike":
            arrays = [self.unroller.tensors[i] for i in lists[0] if i is not None]
            return [self.new(list(self.made(template, (), arrays, after)))]
        if template.kind == "AddN" and len(lists) > 1:
            sums: list[int | None] = []
            for parts in zip(*lists, strict=False):
                some = tuple(i for i in parts if i is not None)
                if len(some) > 1:
                    sums += self.made(template, some, [self.unroller.tensors[some[0]]], after)
                else:
                    sums.append(some[0] if some else None)
            return [self.new(sums)]
        return [self.new(list(lists[0])) for _ in template.outputs]
