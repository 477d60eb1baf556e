"""A Program as JSON and back: rows instead of objects, since there are tens of thousands of them."""

from dataclasses import fields
from operator import attrgetter
from typing import Any

from legroom.records import Allocation, Buffer, Instruction, Program, Trial


def rows(records: Any, kind: Any) -> list[Any]:
    return list(map(attrgetter(*(field.name for field in fields(kind))), records))


def program_to_json(program: Program) -> dict[str, Any]:
    return {
        "schedule": rows(program.schedule, Instruction),
        "allocations": rows(program.allocations, Allocation),
        "buffers": rows(program.buffers, Buffer),
        "total_bytes": program.total_bytes,
        "tuned_bytes": program.tuned_bytes,
        "trials": rows(program.trials, Trial),
    }


def program_from_json(kept: dict[str, Any]) -> Program:
    return Program(
        schedule=tuple(Instruction(*row) for row in kept["schedule"]),
        allocations=tuple(Allocation(*row) for row in kept["allocations"]),
        buffers=tuple(Buffer(*row) for row in kept["buffers"]),
        total_bytes=kept["total_bytes"],
        tuned_bytes=kept["tuned_bytes"],
        trials=tuple(Trial(tuple(inputs), *rest) for inputs, *rest in kept["trials"]),
    )
