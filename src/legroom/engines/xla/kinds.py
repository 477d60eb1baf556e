"""Says what the values of a compiled step are for: activations, gradients, workspaces, or nothing to speak of.

A gradient is a value that was not made on the way forward, has the shape of a trainable weight, and goes into an instruction that
writes a weight or an optimizer's variable, directly or through element-wise work on values of the same shape.
"""

from math import prod

from legroom.engines.layer_names import LayerNames, split_op_name
from legroom.engines.xla.buffers import Value
from legroom.engines.xla.hlo_text import HloComputation, HloInstruction, HloModule, Shape
from legroom.records.program import Category
from legroom.records.step import Role, Step

ROLE_CATEGORIES: dict[Role, Category] = {
    "weight": "weights",
    "state": "weights",
    "optimizer": "optimizer",
    "input": "inputs",
    "metric": "other",
    "other": "other",
}
_RENAMING = frozenset({"bitcast", "get-tuple-element", "copy", "opt-barrier"})
_PASSING = frozenset({"bitcast", "copy", "convert", "transpose", "reshape", "copy-start", "copy-done", "fusion"})
_CONTRACTIONS = frozenset({"dot", "convolution", "custom-call", "scaled-dot", "ragged-dot"})
_CONTROL = frozenset({"while", "conditional"})
_SPLIT_AT_MOST = 128

Dims = tuple[int, ...]


def fold(dims: Dims) -> Dims:
    """A shape's identity up to the order of its dimensions and those of size one."""
    return tuple(sorted(d for d in dims if d != 1))


def is_backward(op_name: str) -> bool:
    return "transpose(" in op_name or "gradient_tape/" in op_name or op_name.startswith("gradients/")


def _is_of_the_compiler(op_name: str) -> bool:
    """Whether no operation of the framework gave it its name: none, a parameter's, or that of a sum of gradients."""
    return not op_name or op_name == "XLA_Args" or op_name.endswith("]") or op_name.startswith("AddN")


def _position(index: str) -> int:
    """`{3}` → 3: which element of a tuple."""
    return int(index.strip("{}").split(",")[0] or 0)


class Kinds:
    """Category and layer of every value of one program."""

    def __init__(self, module: HloModule, step: Step) -> None:
        self._module = module
        self._step = step
        op_names = {i.op_name for computation in module.computations.values() for i in computation.instructions}
        self._names = LayerNames(step.layers, op_names)
        self._callers = {name: i for c in module.computations.values() for i in c.instructions for name in i.called}
        self._layers: dict[str, str] = {}
        self._parameters = {i.name: number for number, i in module.entry.parameters.items()}
        weights = [t for t in step.parameters if t.role == "weight"]
        self._weight_shapes = {fold(t.shape) for t in weights}
        self._weight_elements = {prod(t.shape) for t in weights}
        self._results = self._find_results()
        self._pending: set[str] = set()
        self._gradients = self._find_gradients()
        self._find_layers()

    def category_of(self, value: Value) -> Category:
        """What a temporary value is for."""
        instruction = self._instruction(value.instruction)
        if instruction is None or value.is_tuple or instruction.opcode == "constant":
            return "other"
        if self._is_workspace(instruction, value):
            return "workspace"
        if value.key in self._gradients:
            return "gradients"
        return "other" if value.key in self._pending or self._is_update(instruction) else "activations"

    def is_result(self, value: Value) -> bool:
        """Whether the step returns that value."""
        return value.key in self._results

    def category_of_result(self, value: Value) -> Category:
        """What a returned value is for: the new value of a variable, or something to look at."""
        parameter = self._module.aliases.get(self._results.get(value.key, -1))
        if parameter is not None:
            return ROLE_CATEGORIES[self._step.parameters[parameter].role]
        return "weights" if self._is_like_weight(value.shape) else "other"

    def _is_like_weight(self, shape: Shape | None) -> bool:
        return shape is not None and len(shape.dims) > 0 and fold(shape.dims) in self._weight_shapes

    def layer_of(self, name: str) -> str:
        """The layer that an instruction works for; "" for none."""
        return self._layers.get(name, "")

    def op_name_of(self, instruction: HloInstruction) -> str:
        """An instruction's own name in the framework, else that of what it fuses."""
        return instruction.op_name or next((name for name in self._fused_names(instruction)), "")

    def _instruction(self, name: str) -> HloInstruction | None:
        home = self._module.homes.get(name)
        return home.by_name[name] if home is not None else None

    def _find_layers(self) -> None:
        """Callers before what they call, and makers before users: each may give its layer to the next."""
        todo = [self._module.entry]
        seen = {self._module.entry.name}
        while todo:
            computation = todo.pop()
            for instruction in computation.instructions:
                self._layers[instruction.name] = self._find_layer(computation, instruction)
                if instruction.opcode in _CONTROL | {"call"}:
                    todo += [self._module.computations[name] for name in instruction.called if name not in seen]
                    seen.update(instruction.called)

    def _find_layer(self, home: HloComputation, instruction: HloInstruction) -> str:
        if instruction.name in self._parameters:
            return self.parameter_layer(self._parameters[instruction.name])
        layer = self._names.find(instruction.op_name) or self._fused_layer(instruction)
        if layer:
            return layer
        if instruction.opcode in {"parameter", "tuple"} and home.name in self._callers:
            return self.layer_of(self._callers[home.name].name)
        if _is_of_the_compiler(instruction.op_name):
            return next((layer for layer in map(self.layer_of, instruction.operands) if layer), "")
        return ""

    def parameter_layer(self, number: int) -> str:
        return self._step.parameters[number].layer if number < len(self._step.parameters) else ""

    def _fused_layer(self, instruction: HloInstruction) -> str:
        """The layer of a fusion's root, else that of most of what it fuses; an optimizer's fusion has none."""
        if self._is_update(instruction):
            return ""
        layers = [layer for layer in map(self._names.find, self._fused_names(instruction)) if layer]
        return layers[0] if layers else ""

    def _fused_names(self, instruction: HloInstruction) -> list[str]:
        """The root's name, then the others, the most frequent first."""
        if instruction.opcode not in {"fusion", "async-start"}:
            return []
        bodies = [self._module.computations[name] for name in instruction.called]
        roots = [body.root.op_name for body in bodies if body.root.op_name]
        names = [i.op_name for body in bodies for i in body.instructions if i.op_name and i.opcode != "constant"]
        return roots + sorted(set(names), key=lambda name: (-names.count(name), name))

    def _is_update(self, instruction: HloInstruction) -> bool:
        """Whether it is the optimizer's, by its name."""
        optimizer = (self._step.optimizer or "").lower()
        parts = split_op_name(instruction.op_name)
        return (
            bool(optimizer)
            and not is_backward(instruction.op_name)
            and any(part.lower() == optimizer for part in parts[:3])
        )

    def _is_workspace(self, instruction: HloInstruction, value: Value) -> bool:
        if not instruction.is_tuple or value.shape is None or not self._calls_library(instruction):
            return False
        position = _position(value.index)
        if "dnn_rnn" in instruction.target:
            return position >= (4 if "bwd" in instruction.target else 3)
        return position > 0 and value.shape.dtype in {"u8", "s8"} and len(value.shape.dims) == 1

    def _calls_library(self, instruction: HloInstruction) -> bool:
        if instruction.opcode == "custom-call":
            return True
        return instruction.opcode == "fusion" and (
            "kind=kCustom" in instruction.attributes or any(i.opcode == "custom-call" for i in self._fused(instruction))
        )

    def _fused(self, instruction: HloInstruction) -> list[HloInstruction]:
        return [i for name in instruction.called for i in self._module.computations[name].instructions]

    def _find_gradients(self) -> set[str]:
        updates = self._updates()
        todo = [
            (home, operand, True)
            for name in sorted(updates)
            if (home := self._module.homes.get(name)) is not None
            for operand in home.by_name[name].operands
        ]
        gradients: set[str] = set()
        seen: set[str] = set()
        while todo:
            home, operand, is_direct = todo.pop()
            instruction, index, shapes = self._resolve(home, operand)
            key = instruction.name + index
            if key in seen or instruction.name in updates or not self._may_be_gradient(instruction, shapes, is_direct):
                continue
            seen.add(key)
            gradients.add(key)
            todo += self._sources(home, instruction, index)
            gradients |= self._loop_aliases(home, instruction, index)
        return gradients

    def _find_results(self) -> dict[str, int]:
        """The values that the step returns, and in which position."""
        entry = self._module.entry
        names = entry.root.operands if entry.root.opcode == "tuple" else (entry.root.name,)
        results: dict[str, int] = {}
        for position, name in enumerate(names):
            instruction, index, _ = self._resolve(entry, name)
            results[instruction.name + index] = position
        return results

    def _updates(self) -> set[str]:
        """The instructions that make the new value of a weight or of an optimizer's variable."""
        entry = self._module.entry
        updates: set[str] = set()
        names = entry.root.operands if entry.root.opcode == "tuple" else (entry.root.name,)
        for position, name in enumerate(names):
            instruction, _, shapes = self._resolve(entry, name)
            parameter = self._module.aliases.get(position)
            role = self._step.parameters[parameter].role if parameter is not None else None
            if role in {"weight", "optimizer"} or (
                role is None and self._is_like_weight(shapes[0] if shapes else None)
            ):
                updates.add(self._writer(instruction.name))
        return updates - self._parameters.keys()

    def _writer(self, name: str) -> str:
        """Who makes the value that an instruction writes. A new value that waits to be copied into its variable is pending."""
        entry = self._module.entry
        while entry.by_name[name].opcode == "copy":
            source, index, _ = self._resolve(entry, entry.by_name[name].operands[0])
            if source.name in self._parameters:
                break
            self._pending.add(source.name + index)
            name = source.name
        return name

    def _resolve(self, home: HloComputation, name: str) -> tuple[HloInstruction, str, list[Shape]]:
        """The instruction that made an operand, which of its results it is, and the shapes that it goes by on the way."""
        instruction = home.by_name[name]
        index = "{}"
        shapes = list(instruction.shapes[:1])
        while instruction.opcode in _RENAMING and instruction.operands and instruction.operands[0] in home.by_name:
            if instruction.opcode == "copy" and not instruction.is_tuple:
                break
            if instruction.opcode == "get-tuple-element":
                index = "{" + (instruction.attribute("index") or "0") + "}"
            instruction = home.by_name[instruction.operands[0]]
            shapes += instruction.shapes[:1] if not instruction.is_tuple else ()
        return instruction, index, shapes

    def _may_be_gradient(self, instruction: HloInstruction, shapes: list[Shape], is_direct: bool) -> bool:
        if instruction.opcode in {"parameter", "constant"} or self._is_update(instruction):
            return False
        if not instruction.operands or self._is_of_parameter(instruction):
            return False
        op_name = self.op_name_of(instruction)
        if not is_backward(op_name) and ("jvp(" in op_name or self._names.find(op_name)):
            return False
        if any(fold(shape.dims) in self._weight_shapes for shape in shapes):
            return True
        if not is_direct:
            return False
        return any(shape.elements in self._weight_elements or self._is_split(shape) for shape in shapes)

    def _is_of_parameter(self, instruction: HloInstruction) -> bool:
        """Whether it is made of one of the step's parameters alone: a weight in another layout or precision."""
        home = self._module.homes[instruction.name]
        while len(instruction.operands) == 1 and instruction.opcode in _PASSING | _RENAMING:
            instruction = home.by_name[instruction.operands[0]]
        return instruction.name in self._parameters

    def _is_split(self, shape: Shape) -> bool:
        """Whether it is a weight's gradient in parts, as a matrix product leaves it that was split along what it sums over."""
        whole = shape.dims[1:]
        return len(whole) > 1 and shape.dims[0] <= _SPLIT_AT_MOST and fold(whole) in self._weight_shapes

    def _sources(
        self, home: HloComputation, instruction: HloInstruction, index: str
    ) -> list[tuple[HloComputation, str, bool]]:
        """What a gradient was made of, where that may be a gradient itself."""
        if instruction.opcode in _CONTROL:
            position = _position(index)
            bodies = (self._module.computations[name] for name in instruction.called)
            roots = ((body, body.root) for body in bodies if body.root.opcode == "tuple")
            return [(body, root.operands[position], False) for body, root in roots if position < len(root.operands)]
        if instruction.opcode in _PASSING and not any(i.opcode in _CONTRACTIONS for i in self._fused(instruction)):
            return [(home, operand, False) for operand in instruction.operands if operand in home.by_name]
        if instruction.opcode in {"add", "multiply"}:
            return [(home, operand, False) for operand in instruction.operands]
        return []

    def _loop_aliases(self, home: HloComputation, loop: HloInstruction, index: str) -> set[str]:
        """The other names of a gradient that a loop sums up: what it starts with, and the parameters of its computations."""
        if loop.opcode != "while":
            return set()
        computations = (self._module.computations[name] for name in loop.called)
        aliases = {
            computation.parameters[0].name + index for computation in computations if 0 in computation.parameters
        }
        start = home.by_name[loop.operands[0]]
        if start.opcode == "tuple":
            zeros, zeros_index, _ = self._resolve(home, start.operands[_position(index)])
            aliases.add(zeros.name + zeros_index)
        return aliases
