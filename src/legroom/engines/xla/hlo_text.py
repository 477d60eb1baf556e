"""Reads XLA's HLO text into computations and instructions: only what costs, categories and layers need.

The grammar is `HloInstruction::Print` of XLA (xla/hlo/ir/hlo_instruction.cc). Lines are read one by one and attributes only
when they are asked for, because the programs are megabytes long and most of their text is backend configuration.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod

from legroom.errors import EngineError

_ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{([^{}]*)\})?")
_HEADER = re.compile(r"(ENTRY )?%?([^\s(]+) .*\{$")
_OPERAND = re.compile(r"%([^\s,()]+)")
_OPCODE = re.compile(r"[a-z][\w\-]*")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|branch_computations|true_computation|false_computation)=(\{[^}]*\}|%[^\s,)]+)"
)
_ALIAS = re.compile(r"\{ ?(\d*) ?\}: \((\d+), \{\}, (?:may|must)-alias\)")
_NAME = re.compile(r"%([^\s,(){}]+)")
_DIMENSION = re.compile(r"<=|\?")
_BITS = {"pred": 8, "token": 0, "opaque": 0}
_BITS_IN_LAYOUT = re.compile(r"E\((\d+)\)")
_BITS_IN_NAME = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Shape:
    """One array: its element type, its dimensions, what it takes."""

    dtype: str
    dims: tuple[int, ...]
    size_bytes: int

    @property
    def elements(self) -> int:
        return prod(self.dims)


@dataclass(frozen=True)
class HloInstruction:
    """One instruction. `shapes` are the arrays it makes (the leaves, when it makes a tuple); `attributes` is the rest of its line."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    is_tuple: bool
    operands: tuple[str, ...]
    argument: str
    attributes: str = field(repr=False)
    is_root: bool = False

    @cached_property
    def op_name(self) -> str:
        """The framework's name of the operation, with the layers in it; "" when the compiler kept none."""
        return self._quoted('op_name="')

    @cached_property
    def target(self) -> str:
        """What a custom call calls, such as `__cudnn$convForward`."""
        return self._quoted('custom_call_target="')

    @cached_property
    def called(self) -> tuple[str, ...]:
        """The computations that it runs or applies."""
        if "=%" not in self.attributes and "={%" not in self.attributes:
            return ()
        return tuple(name for group in _CALLED.findall(self.attributes) for name in _NAME.findall(group))

    @property
    def size_bytes(self) -> int:
        return sum(shape.size_bytes for shape in self.shapes)

    def attribute(self, key: str) -> str | None:
        """A plain or braced attribute: `dim_labels=b01f_01io->b01f` or `lhs_contracting_dims={1}` (without the braces)."""
        start = self.attributes.find(f"{key}=")
        while start > 0 and self.attributes[start - 1] not in " {,":
            start = self.attributes.find(f"{key}=", start + 1)
        if start < 0:
            return None
        start += len(key) + 1
        if self.attributes[start : start + 1] == "{":
            return self.attributes[start + 1 : self.attributes.index("}", start)]
        return re.split(r"[,\s]", self.attributes[start:], maxsplit=1)[0]

    def _quoted(self, key: str) -> str:
        start = self.attributes.find(key)
        if start < 0:
            return ""
        start += len(key)
        return self.attributes[start : self.attributes.index('"', start)]


@dataclass(frozen=True)
class HloComputation:
    """A list of instructions in their scheduled order."""

    name: str
    instructions: tuple[HloInstruction, ...]
    is_entry: bool = False

    @cached_property
    def by_name(self) -> dict[str, HloInstruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @cached_property
    def root(self) -> HloInstruction:
        return next((i for i in self.instructions if i.is_root), self.instructions[-1])

    @cached_property
    def parameters(self) -> dict[int, HloInstruction]:
        return {int(i.argument): i for i in self.instructions if i.opcode == "parameter"}

    def operands_of(self, instruction: HloInstruction) -> list[HloInstruction]:
        """The instructions that make its operands."""
        return [self.by_name[name] for name in instruction.operands if name in self.by_name]


@dataclass(frozen=True)
class HloModule:
    """A compiled program. `aliases` says which results are written over which parameters: position in the result → parameter."""

    computations: dict[str, HloComputation]
    entry: HloComputation
    aliases: dict[int, int] = field(default_factory=dict)

    @cached_property
    def homes(self) -> dict[str, HloComputation]:
        """The computation of every instruction, by the instruction's name (XLA keeps these unique in a module)."""
        return {i.name: computation for computation in self.computations.values() for i in computation.instructions}


def parse_hlo(text: str) -> HloModule:
    """Reads a whole module."""
    computations: dict[str, HloComputation] = {}
    entry: HloComputation | None = None
    header: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if header is not None and line.startswith("}"):
            computation = _read_computation(header, lines)
            computations[computation.name] = computation
            entry = computation if computation.is_entry else entry
            header, lines = None, []
        elif header is not None:
            lines.append(line)
        elif line.endswith("{") and " -> " in line and not line.startswith("HloModule"):
            header = _HEADER.match(line)
    if entry is None:
        raise EngineError(
            "The compiler's program could not be read: it has no ENTRY computation.",
            hint="Report this together with the versions that `legroom doctor` prints.",
        )
    aliases = _ALIAS.findall(text, 0, text.find("\n"))
    return HloModule(computations, entry, {int(position or 0): int(parameter) for position, parameter in aliases})


def _read_computation(header: re.Match[str], lines: Iterable[str]) -> HloComputation:
    instructions = tuple(_read_instruction(line) for line in lines if " = " in line)
    return HloComputation(header.group(2), instructions, is_entry=header.group(1) is not None)


def _read_instruction(line: str) -> HloInstruction:
    left, _, right = line.partition(" = ")
    left = left.strip()
    is_root = left.startswith("ROOT ")
    name = left.removeprefix("ROOT ").lstrip("%")
    is_tuple = right.startswith("(")
    end = _closing(right, 0) + 1 if is_tuple else right.find(" ")
    opcode_match = _OPCODE.match(right, end + 1)
    if end <= 0 or opcode_match is None:
        raise EngineError(f"The compiler's program could not be read at this line: {line.strip()[:200]}")
    opcode = opcode_match.group()
    begin = opcode_match.end()
    close = _closing(right, begin)
    argument = "" if opcode == "constant" else right[begin + 1 : close]
    operands = tuple(_OPERAND.findall(argument))
    return HloInstruction(
        name, opcode, parse_shapes(right[:end]), is_tuple, operands, argument, right[close + 1 :], is_root
    )


def _closing(text: str, start: int) -> int:
    """Where the bracket that opens at `start` closes."""
    depth = 0
    position = start
    while True:
        close = text.find(")", position)
        if close < 0:
            return len(text)
        depth += text.count("(", position, close) - 1
        if depth == 0:
            return close
        position = close + 1


@lru_cache(maxsize=65536)
def parse_shapes(text: str) -> tuple[Shape, ...]:
    """The arrays of a shape: one, or the leaves of a tuple."""
    return tuple(_shape(dtype, dims, layout) for dtype, dims, layout in _ARRAY.findall(text))


def _shape(dtype: str, dims_text: str, layout: str) -> Shape:
    dims = tuple(int(_DIMENSION.sub("", d)) for d in dims_text.split(",") if d.strip())
    bits = _BITS_IN_LAYOUT.search(layout)
    width = int(bits.group(1)) if bits else dtype_bits(dtype)
    return Shape(dtype, dims, (prod(dims) * width + 7) // 8)


@lru_cache(maxsize=64)
def dtype_bits(dtype: str) -> int:
    """How wide an element is: the first number in the name of its type (`f8e4m3fn` → 8), and a byte unless the layout packs it."""
    if dtype in _BITS:
        return _BITS[dtype]
    number = _BITS_IN_NAME.search(dtype)
    if number is None:
        raise EngineError(f"The compiler's program has an array of the unknown type {dtype!r}.")
    return max(8, int(number.group()))
