"""Turns what XLA wrote about a compiled step into a Program: its schedule, its allocations, and every buffer with its life."""

from collections.abc import Iterable
from typing import Literal

from legroom.engines.xla.buffers import (
    AssignedAllocation,
    DumpTexts,
    LiveRanges,
    load_dump,
    read_allocations,
    read_live_ranges,
)
from legroom.engines.xla.convolutions import Question
from legroom.engines.xla.cost import Cost, count_costs
from legroom.engines.xla.hlo_text import HloModule, parse_hlo
from legroom.engines.xla.kinds import ROLE_CATEGORIES, Kinds
from legroom.engines.xla.trials import trials_of
from legroom.errors import EngineError
from legroom.records.program import Allocation, Buffer, Category, Instruction, Program
from legroom.records.step import Step

__all__ = ["DumpTexts", "load_dump", "read_program"]


def read_program(dump: DumpTexts, step: Step, questions: Iterable[Question] = ()) -> Program:
    """Reads a program, of which XLA has asked these questions. Raises EngineError when the texts do not add up to the compiler's own total."""
    module = parse_hlo(dump.hlo)
    assigned = read_allocations(dump)
    held = [a for a in assigned if not a.is_thread_local and not a.is_host]
    live = read_live_ranges(dump)
    _check_parameters(module, step)
    kinds = Kinds(module, step)
    buffers = [buffer for allocation in held for buffer in _read_buffers(allocation, live, kinds, step)]
    return Program(
        schedule=_read_schedule(module, live, kinds),
        allocations=tuple(Allocation(a.index, a.size_bytes, _kind(a), a.parameter) for a in held),
        buffers=tuple(buffers),
        total_bytes=sum(a.size_bytes for a in held),
        trials=trials_of(module, questions),
    )


def _check_parameters(module: HloModule, step: Step) -> None:
    if len(module.entry.parameters) != len(step.parameters):
        raise EngineError(
            f"The compiled program takes {len(module.entry.parameters)} arrays, but the captured step has {len(step.parameters)}.",
            hint="Report this together with the training script: the two must be the same.",
        )


def _kind(allocation: AssignedAllocation) -> Literal["parameter", "constant", "output", "temporary"]:
    if allocation.parameter is not None:
        return "parameter"
    if allocation.is_constant:
        return "constant"
    return "output" if allocation.is_output else "temporary"


def _read_schedule(module: HloModule, live: LiveRanges, kinds: Kinds) -> tuple[Instruction, ...]:
    costs = count_costs(module)
    schedule = []
    for name in live.sequence:
        home = module.homes.get(name)
        if home is None:
            raise EngineError(f"The compiler's schedule runs {name}, which its program does not have.")
        instruction = home.by_name[name]
        cost = costs.get(name, Cost())
        op_name = kinds.op_name_of(instruction)
        schedule.append(
            Instruction(
                *(name, instruction.target or instruction.opcode, op_name),
                *(cost.flops, cost.moved_bytes, cost.launches),
            )
        )
    return tuple(schedule)


def _read_buffers(allocation: AssignedAllocation, live: LiveRanges, kinds: Kinds, step: Step) -> list[Buffer]:
    """A parameter, a constant and a result hold all of their allocation from the first moment to the last.

    XLA puts other values into the place of a donated parameter between its last use and its new value. Those take nothing
    that the parameter does not hold anyway, and are left out: a weight is shown as what it takes.
    """
    last = len(live.sequence) - 1
    whole = _whole(allocation, kinds, step)
    if whole is not None:
        name, category, layer = whole
        return [Buffer(name, allocation.index, 0, allocation.size_bytes, 0, last, category, layer)]
    buffers = []
    for value in allocation.values:
        birth, death = live.ranges.get(value.key, (0, last))
        layer = "" if value.is_tuple else kinds.layer_of(value.instruction)
        place = (allocation.index, value.offset_bytes, value.size_bytes)
        buffers.append(Buffer(value.key, *place, birth, death, kinds.category_of(value), layer))
    return buffers


def _whole(allocation: AssignedAllocation, kinds: Kinds, step: Step) -> tuple[str, Category, str] | None:
    """The name, category and layer of what holds an allocation from end to end; None for the temporaries."""
    if allocation.parameter is not None:
        tensor = step.parameters[allocation.parameter]
        return tensor.name, ROLE_CATEGORIES[tensor.role], tensor.layer
    if not allocation.is_constant and not allocation.is_output:
        return None
    results = [value for value in allocation.values if kinds.is_result(value)] or list(allocation.values)
    if not results or allocation.is_constant:
        return results[0].key if results else "", "other", ""
    return results[0].key, kinds.category_of_result(results[0]), ""
