"""Gradient accumulation: an optimizer that is applied in some steps only. The step to size is one in which it is."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from legroom.capture.reach import Condition
from legroom.capture.syntax import names_bound, names_read

FURTHEST = 10_000  # steps ahead in which the next one that applies the optimizer is looked for
PLAIN = (ast.Compare, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Name, ast.Constant)
PARTS = (ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.expr_context)


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the loop: what its variables hold as it begins, which of them count the turns, and what it runs."""

    names: dict[str, Any]
    counters: Sequence[str]
    statements: Sequence[ast.stmt]

    def changing(self, line: int) -> set[str]:
        """The variables that the turn assigns before that line."""
        nodes = [node for row in self.statements for node in ast.walk(row) if isinstance(node, ast.Name)]
        return {*names_bound(node for node in nodes if node.lineno < line)}

    def ahead(self, conditions: Sequence[Condition]) -> int | None:
        """How many turns until all conditions hold; None if that cannot be told by arithmetic on numbers."""
        read = names_read([test for test, _ in conditions])
        numbers = {name: self.names[name] for name in read if isinstance(self.names.get(name), int | float)}
        plain = all(isinstance(node, PLAIN + PARTS) for test, _ in conditions for node in ast.walk(test))
        line = max(test.lineno for test, _ in conditions)
        if not plain or len(numbers) < len(read) or {*read} & self.changing(line):
            return None
        codes = [(compile(ast.Expression(test), "<condition>", "eval"), wanted) for test, wanted in conditions]
        counters = [name for name in self.counters if name in numbers]
        for ahead in range(FURTHEST if counters else 1):
            values = numbers | {name: numbers[name] + ahead for name in counters}
            try:
                if all(bool(eval(code, {"__builtins__": {}}, values)) is wanted for code, wanted in codes):
                    return ahead
            except (ArithmeticError, TypeError, ValueError):
                return None
        return None

    def reach(self, conditions: Sequence[Condition], place: Callable[[ast.AST], str]) -> tuple[str, ...]:
        """Move the counters on to the first turn in which the conditions hold. Returns what there is to say about it."""
        if not conditions:
            return ()
        ahead, where = self.ahead(conditions), place(conditions[0][0])
        if ahead is None:
            return (
                f"The optimizer is applied under a condition ({where}) that may not hold in the step that is sized; what "
                "applying it takes is left out then.",
            )
        if not ahead:
            return ()
        read = names_read([test for test, _ in conditions])
        moved = {name: self.names[name] + ahead for name in self.counters if name in read}
        self.names.update(moved)
        now = ", ".join(f"{name}={value}" for name, value in moved.items())
        return (f"The optimizer is applied in some steps only ({where}); this is the step of {now}.",)
