"""Some of the user's statements as a function that runs them once: the body of a training loop, or the rest of a function.

The function is compiled from the statements' own syntax tree, so that errors in it point at the lines of the user's file.
"""

import __future__

import ast
import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import CodeType, FunctionType
from typing import Any

FUTURE_FLAGS = reduce(or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))


class Unbound(ast.NodeTransformer):
    """Statements as they mean the same outside their loop, function and class.

    `continue` and `break` of the loop end the step; what is yielded is dropped; private names and `super()` are spelt out.
    """

    def __init__(self, parameters: Collection[str], class_name: str | None, first_argument: str | None) -> None:
        self.parameters = parameters
        self.class_name = class_name
        self.first_argument = first_argument
        self.loops = self.functions = 0

    def visit_For(self, node: Any) -> Any:
        self.loops += 1
        node.body = [self.visit(statement) for statement in node.body]
        self.loops -= 1
        for name in ("target", "iter", "test"):
            if hasattr(node, name):
                setattr(node, name, self.visit(getattr(node, name)))
        node.orelse = [self.visit(statement) for statement in node.orelse]
        return node

    visit_AsyncFor = visit_While = visit_For

    def visit_FunctionDef(self, node: Any) -> Any:
        self.functions += 1
        self.generic_visit(node)
        self.functions -= 1
        return node

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_Continue(self, node: Any) -> Any:
        return node if self.loops or self.functions else ast.copy_location(ast.Return(None), node)

    visit_Break = visit_Continue

    def visit_Yield(self, node: Any) -> Any:
        self.generic_visit(node)
        return node if self.functions else node.value or ast.copy_location(ast.Constant(None), node)

    def visit_Global(self, node: Any) -> Any:
        """Names that were not the function's own are global now."""
        local = [name for name in node.names if name in self.parameters]
        others = [name for name in node.names if name not in self.parameters]
        if not self.functions or (local and others):
            return ast.copy_location(ast.Pass(), node)
        return node if local else ast.copy_location(ast.Global(others), node)

    visit_Nonlocal = visit_Global

    def visit_AnnAssign(self, node: Any) -> Any:
        """A global cannot be annotated."""
        self.generic_visit(node)
        if self.functions or not isinstance(node.target, ast.Name):
            return node
        return ast.copy_location(ast.Assign([node.target], node.value) if node.value else ast.Pass(), node)

    def visit_Call(self, node: Any) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and self.first_argument:
            node.args = [
                ast.copy_location(ast.Name(name, ast.Load()), node) for name in ("__class__", self.first_argument)
            ]
        return node

    def visit_Attribute(self, node: Any) -> Any:
        self.generic_visit(node)
        node.attr = self.spelt(node.attr)
        return node

    def visit_Name(self, node: Any) -> Any:
        node.id = self.spelt(node.id)
        return node

    def spelt(self, name: str) -> str:
        private = name.startswith("__") and not name.endswith("__") and self.class_name
        return f"_{self.class_name.lstrip('_')}{name}" if private and self.class_name else name


@dataclass(frozen=True, slots=True)
class Body:
    """Statements of a loop or function, and what of them to call it with.

    What a turn of a loop assigns stays assigned after it, so with `kept` None all variables are kept in the namespace; what
    a function assigns goes when it returns, except for the variables in `kept`, which it had before.
    """

    statements: Sequence[ast.stmt]
    parameters: Sequence[str]
    code: CodeType
    class_name: str | None = None
    first_argument: str | None = None
    kept: Collection[str] | None = None

    def function(self, names: dict[str, Any]) -> FunctionType:
        """A function that runs the statements once in the namespace `names`, and shows in errors as their own code does.

        Raises SyntaxError for statements that cannot stand in a plain function, such as an `await`.
        """
        unbound = Unbound(self.parameters, self.class_name, self.first_argument)
        body = [unbound.visit(copy.deepcopy(statement)) for statement in self.statements]
        code = self.compile(body)
        assigned = {*code.co_varnames, *code.co_cellvars} - set(self.parameters)
        kept = sorted(assigned if self.kept is None else assigned & set(self.kept))
        if kept:
            code = self.compile([ast.Global(kept), *body])
        name = self.code.co_name
        return FunctionType(code.replace(co_name=name, co_qualname=self.code.co_qualname), names, name)

    def compile(self, body: list[ast.stmt]) -> CodeType:
        function = ast.parse(f"def step({', '.join(self.parameters)}): pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        function.body = body
        for node in (function, *ast.walk(function.args), *body[:1]):
            ast.copy_location(node, self.statements[0])
        tree = ast.fix_missing_locations(ast.Module([function], []))
        flags = self.code.co_flags & FUTURE_FLAGS
        whole = compile(tree, self.code.co_filename, "exec", flags=flags, dont_inherit=True)
        return next(constant for constant in whole.co_consts if isinstance(constant, CodeType))
