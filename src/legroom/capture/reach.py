"""What a piece of the user's code does, followed into the functions of theirs that it calls; nothing of it is run.

A tape and the optimizer that takes its gradients often lie in different functions. An optimizer belongs to the tape at hand
unless it lies in another loop or function that has a tape of its own.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from legroom.capture.syntax import LOOPS, Position, body_of, contains, is_users, scope_of

MISSING = object()
OPTIMIZES = ("apply_gradients", "apply", "minimize")
ASSIGNS = ("assign_sub", "assign_add", "assign")
TAKES_GRADIENTS = ("gradient", "jacobian", "batch_jacobian", "minimize")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Names = Mapping[str, Any]  # what the variables of a piece of code hold
Test = Callable[[ast.AST, Names], bool]
Condition = tuple[ast.expr, bool]  # the test of an `if`, and whether it must hold


@dataclass(frozen=True, slots=True)
class Found:
    """A piece of code that was looked for, or the call that leads to it, and the conditions under which it runs."""

    node: ast.AST
    conditions: tuple[Condition, ...] = ()


def value_of(node: ast.AST, names: Names) -> Any:
    """What `a` or `a.b.c` stands for, looked up without running anything; MISSING if that cannot be told."""
    if isinstance(node, ast.Name):
        return names.get(node.id, MISSING)
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, names)
        return MISSING if owner is MISSING else inspect.getattr_static(owner, node.attr, MISSING)
    return MISSING


def function_of(value: Any) -> FunctionType | None:
    """The user's own function behind a function, method, `tf.function`, partial or callable object."""
    for name in ("__func__", "func", "__wrapped__", "_python_function"):
        inner = inspect.getattr_static(value, name, None)
        value = getattr(value, name, None) if inner is not None and not isinstance(value, type) else value
    if not isinstance(value, FunctionType):
        value = None if isinstance(value, type) else inspect.getattr_static(type(value), "__call__", None)
    return value if isinstance(value, FunctionType) and is_users(value.__code__.co_filename) else None


def names_of(function: FunctionType) -> Names:
    """What the free variables of a function hold."""
    names = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names


def optimizes(node: ast.AST, names: Names) -> bool:
    """`optimizer.apply_gradients`, and `apply` or `minimize` of what is, or is called, an optimizer."""
    if not isinstance(node, ast.Attribute) or node.attr not in OPTIMIZES:
        return False
    if node.attr == "apply_gradients":
        return True
    owner = value_of(node.value, names)
    return "opt" in ast.unparse(node.value).lower() or (
        owner is not MISSING and hasattr(type(owner), "apply_gradients")
    )


def assigns(node: ast.AST, names: Names) -> bool:
    """A variable that is changed by more than a constant: training by hand."""
    method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASSIGNS
    return method and bool(node.args) and not isinstance(node.args[0], ast.Constant)  # type: ignore[attr-defined]


def takes_gradients(node: ast.AST, names: Names) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in TAKES_GRADIENTS


def opens_tape(node: ast.AST, names: Names) -> bool:
    return "GradientTape" in (getattr(node, "attr", None), getattr(node, "id", None))


@dataclass(frozen=True)
class Search:
    """Looks for code that passes `test`; loops and functions with a tape of their own, away from `at`, only if `foreign`."""

    test: Test
    names: Names
    at: Position | None = None
    foreign: bool = False
    path: tuple[FunctionType, ...] = ()

    def first(self, nodes: Iterable[ast.AST]) -> Found | None:
        return next(self.every(nodes), None)

    def every(self, nodes: Iterable[ast.AST]) -> Iterator[Found]:
        for node in nodes:
            if self.is_foreign(node) or self.is_only_defined(node):
                continue
            if self.test(node, self.names):
                yield Found(node)
            if isinstance(node, ast.If) and not (self.at and contains(node, self.at)):
                yield from self.every([node.test])
                for suite, holds in ((node.body, True), (node.orelse, False)):
                    for found in self.every(suite):
                        yield replace(found, conditions=((node.test, holds), *found.conditions))
                continue
            yield from self.called(node)
            yield from self.every(ast.iter_child_nodes(node))

    def called(self, node: ast.AST) -> Iterator[Found]:
        if not isinstance(node, ast.Call):
            return
        function = function_of(value_of(node.func, self.names))
        scope = None if function is None or function in self.path else scope_of(function.__code__)
        if function is None or scope is None:
            return
        inside = replace(self, names=names_of(function), at=None, path=(*self.path, function))
        if self.foreign or not inside.has_tape(body_of(scope)):
            for found in inside.every(body_of(scope)):
                yield Found(node, tuple((node, holds) for _, holds in found.conditions))

    def has_tape(self, nodes: Iterable[ast.AST]) -> bool:
        return replace(self, test=opens_tape, at=None, foreign=True).first(nodes) is not None

    def is_foreign(self, node: ast.AST) -> bool:
        loop = isinstance(node, LOOPS) and not (self.at and contains(node, self.at))
        return loop and not self.foreign and self.has_tape([node])

    def is_only_defined(self, node: ast.AST) -> bool:
        """A function or class that is met on the way does nothing until it is called."""
        return isinstance(node, DEFINITIONS) and not (self.at and contains(node, self.at))
