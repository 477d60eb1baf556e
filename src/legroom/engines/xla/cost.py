"""Counts what a compiled step computes and moves: FLOPs and bytes for each line of its schedule.

The rules are those of `HloCostAnalysis` (xla/service/hlo_cost_analysis.cc): two FLOPs for a multiply-add, one for each element of an
elementwise result or of what is reduced, none for moving data. XLA's own answer is not to be had without a device.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from legroom.engines.xla.hlo_text import HloComputation, HloInstruction, HloModule, Shape

_FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "add-dependency",
    "while", "conditional", "call", "domain", "copy-done", "async-done", "async-update", "partition-id",
    "replica-id",
})  # fmt: skip
_DATA_MOVEMENT = frozenset({
    "broadcast", "bitcast-convert", "copy", "copy-start", "transpose", "reshape", "slice", "dynamic-slice",
    "dynamic-update-slice", "concatenate", "pad", "reverse", "gather", "iota", "dynamic-reshape",
    "get-dimension-size", "infeed", "outfeed", "send", "recv", "all-gather", "all-to-all", "collective-permute",
})  # fmt: skip
_SLICES = frozenset({"dynamic-slice", "slice", "gather"})
_CONTROL = frozenset({"while", "conditional", "call"})
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CONTRACTED = re.compile(r'"lhs_contracting_dimensions":\[([^\]]*)\]')
_ATTENTION = re.compile(r'"bmm1_dot_dimension_numbers":\{[^}]*\}')
_LIST = r'"{}":\[([^\]]*)\]'


@dataclass(frozen=True, slots=True)
class Cost:
    """What one instruction computes and moves, over all times that it runs in a step."""

    flops: int = 0
    moved_bytes: int = 0
    launches: int = 0


def count_costs(module: HloModule) -> dict[str, Cost]:
    """The cost of each instruction of the entry computation and of the loop bodies and branches below it, by name."""
    costs: dict[str, Cost] = {}
    _count_computation(module, module.entry, 1, costs)
    return costs


def _count_computation(module: HloModule, computation: HloComputation, times: int, costs: dict[str, Cost]) -> None:
    for instruction in computation.instructions:
        if instruction.opcode in _CONTROL:
            inner = times * trip_count(instruction) if instruction.opcode == "while" else times
            for name in instruction.called:
                _count_computation(module, module.computations[name], inner, costs)
        flops = 0 if instruction.opcode in _CONTROL else flops_of(module, computation, instruction)
        moved_bytes = 0 if instruction.opcode in _FREE else _moved_bytes(module, computation, instruction)
        launches = 0 if instruction.opcode in _FREE else times
        costs[instruction.name] = Cost(times * flops, times * moved_bytes, launches)


def trip_count(loop: HloInstruction) -> int:
    """How often a while loop runs, when the compiler knows it; else 1."""
    known = _TRIP_COUNT.search(loop.attributes)
    return int(known.group(1)) if known else 1


def _moved_bytes(module: HloModule, computation: HloComputation, instruction: HloInstruction) -> int:
    """Each operand read once, each result written once; what a slice or an in-place update leaves alone is not moved."""
    operands = computation.operands_of(instruction)
    if instruction.opcode in _SLICES:
        return 2 * instruction.size_bytes
    if instruction.opcode == "dynamic-update-slice":
        return 2 * operands[1].size_bytes
    if instruction.opcode == "fusion":
        body = module.computations[instruction.called[0]]
        return sum(_read_bytes(body, i, operand) for i, operand in enumerate(operands)) + _written_bytes(
            body, instruction
        )
    return instruction.size_bytes + sum(operand.size_bytes for operand in operands)


def _read_bytes(body: HloComputation, number: int, operand: HloInstruction) -> int:
    """What a fusion reads of one operand: the slices, where it takes nothing but slices, and nothing where it only writes into it."""
    parameter = body.parameters.get(number)
    if parameter is None:
        return operand.size_bytes
    users = [i for i in body.instructions if parameter.name in i.operands]
    if not users or not all(_touches_part(user, parameter) for user in users):
        return operand.size_bytes
    return sum(user.size_bytes for user in users if user.opcode in _SLICES)


def _touches_part(user: HloInstruction, parameter: HloInstruction) -> bool:
    is_partial = user.opcode in _SLICES or user.opcode == "dynamic-update-slice"
    return is_partial and user.operands.index(parameter.name) == 0 and user.operands.count(parameter.name) == 1


def _written_bytes(body: HloComputation, fusion: HloInstruction) -> int:
    root = body.root
    while root.opcode == "bitcast":
        root = body.by_name[root.operands[0]]
    return body.by_name[root.operands[1]].size_bytes if root.opcode == "dynamic-update-slice" else fusion.size_bytes


def flops_of(module: HloModule, computation: HloComputation, instruction: HloInstruction) -> int:
    """The FLOPs of one run of an instruction."""
    opcode = instruction.opcode
    if opcode in _FREE or opcode in _DATA_MOVEMENT:
        return 0
    if opcode in {"fusion", "async-start"}:
        return sum(_body_flops(module, module.computations[name]) for name in instruction.called)
    count = _COUNTERS.get(opcode)
    if count is not None:
        return count(computation, instruction)
    return sum(shape.elements for shape in instruction.shapes)


def _body_flops(module: HloModule, body: HloComputation) -> int:
    return sum(flops_of(module, body, instruction) for instruction in body.instructions)


def _dot(computation: HloComputation, dot: HloInstruction) -> int:
    left = computation.by_name[dot.operands[0]].shapes[0]
    return 2 * dot.shapes[0].elements * _product(left, dot.attribute("lhs_contracting_dims") or "")


def _product(shape: Shape, dimensions: str) -> int:
    """The product of the dimensions of a shape that a list such as `1,2` or `"1","2"` names."""
    return prod(shape.dims[int(d.strip(' "'))] for d in dimensions.split(",") if d.strip(' "'))


def _convolution(computation: HloComputation, convolution: HloInstruction) -> int:
    kernel = computation.by_name[convolution.operands[1]].shapes[0]
    flops = _convolve(convolution, convolution.shapes[0], kernel)
    return flops // prod(_dilations(convolution))


def _dilations(convolution: HloInstruction) -> list[int]:
    """Zeros between the elements of the input, as in the gradient of a strided convolution: nobody multiplies them."""
    dilation = re.search(r"lhs_dilate=([\dx]+)", convolution.attribute("window") or "")
    return [int(d) for d in dilation.group(1).split("x")] if dilation else [1]


def _convolve(instruction: HloInstruction, output: Shape, kernel: Shape) -> int:
    """Two FLOPs for each element of the output and each element of the kernel that makes one output feature."""
    labels = re.search(r"_([\w?]+)->", instruction.attribute("dim_labels") or "")
    if labels is None:
        return 0
    features = kernel.dims[labels.group(1).index("o")]
    return 2 * output.elements * kernel.elements // max(1, features)


def _reduce(computation: HloComputation, reduce: HloInstruction) -> int:
    inputs = computation.operands_of(reduce)
    return sum(shape.elements for operand in inputs[: max(1, len(inputs) // 2)] for shape in operand.shapes)


def _reduce_window(_: HloComputation, reduce: HloInstruction) -> int:
    size = re.search(r"size=([\dx]+)", reduce.attribute("window") or "")
    return reduce.shapes[0].elements * (prod(int(d) for d in size.group(1).split("x")) if size else 1)


def _scatter(computation: HloComputation, scatter: HloInstruction) -> int:
    return computation.by_name[scatter.operands[-1]].shapes[0].elements


def _sort(_: HloComputation, sort: HloInstruction) -> int:
    elements = sort.shapes[0].elements
    return elements * max(1, elements.bit_length())


def _custom_call(computation: HloComputation, call: HloInstruction) -> int:
    operands = [operand.shapes[0] for operand in computation.operands_of(call) if operand.shapes]
    target = call.target
    if target.startswith("__cudnn$conv"):
        return _cudnn_convolution(call, operands)
    if target.startswith(("__cublas$gemm", "__cublas$lt$matmul")):
        contracted = _CONTRACTED.search(call.attributes)
        return 2 * call.shapes[0].elements * _product(operands[0], contracted.group(1) if contracted else "")
    if "dnn_rnn" in target:
        return _cudnn_rnn(call, operands)
    if target.startswith("__cudnn$fmha"):
        return _attention(call, operands)
    return 0


def _cudnn_convolution(call: HloInstruction, operands: list[Shape]) -> int:
    """All three kinds are labelled as the forward convolution is; they differ in which of the three arrays they make."""
    result = call.shapes[0]
    if call.target.startswith("__cudnn$convBackwardInput"):
        return _convolve(call, output=operands[0], kernel=operands[1])
    if call.target.startswith("__cudnn$convBackwardFilter"):
        return _convolve(call, output=operands[1], kernel=result)
    return _convolve(call, output=result, kernel=operands[1])


def _cudnn_rnn(call: HloInstruction, operands: list[Shape]) -> int:
    """A multiply-add with every weight at every moment of every sequence; twice that on the way back."""
    backward = "bwd" in call.target
    sequence, weights = (operands[3], operands[6]) if backward else (operands[0], operands[3])
    return (4 if backward else 2) * prod(sequence.dims[:2]) * weights.elements


def _attention(call: HloInstruction, operands: list[Shape]) -> int:
    """Query times key, and its result times value; five such products on the way back."""
    numbers = _ATTENTION.search(call.attributes)
    if numbers is None or len(operands) < 2:
        return 0
    query, key = operands[0], operands[1]
    held = [
        re.search(_LIST.format(kind), numbers.group())
        for kind in ("rhs_contracting_dimensions", "rhs_batch_dimensions")
    ]
    keys = key.elements // max(1, prod(_product(key, found.group(1)) for found in held if found))
    return (10 if "Backward" in call.target else 4) * query.elements * keys


_COUNTERS: dict[str, Callable[[HloComputation, HloInstruction], int]] = {
    "dot": _dot,
    "scaled-dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "all-reduce": _reduce,
    "reduce-scatter": _reduce,
    "reduce-window": _reduce_window,
    "select-and-scatter": _reduce,
    "scatter": _scatter,
    "sort": _sort,
    "custom-call": _custom_call,
}
