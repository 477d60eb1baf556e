"""A Program as JSON and back: rows instead of objects, since there are tens of thousands of them."""

from dataclasses import astuple
from typing import Any

from legroom.records import Allocation, Buffer, Instruction, Program


def program_to_json(program: Program) -> dict[str, Any]:
    return {
        "schedule": [astuple(instruction) for instruction in program.schedule],
        "allocations": [astuple(allocation) for allocation in program.allocations],
        "buffers": [astuple(buffer) for buffer in program.buffers],
        "total_bytes": program.total_bytes,
    }


def program_from_json(kept: dict[str, Any]) -> Program:
    return Program(
        schedule=tuple(Instruction(*row) for row in kept["schedule"]),
        allocations=tuple(Allocation(*row) for row in kept["allocations"]),
        buffers=tuple(Buffer(*row) for row in kept["buffers"]),
        total_bytes=kept["total_bytes"],
    )
