"""Where a running frame stands in its source: its function, the loops around it, and what its statements bind and read."""

import ast
import linecache
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

Position = tuple[int, int]  # line, and column in bytes, as in the syntax tree
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
OWN_FOLDER = str(Path(__file__).resolve().parents[1])
STANDARD_LIBRARY = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})


def is_installed(filename: str) -> bool:
    """A library: TensorFlow, Keras, whatever pip has put there."""
    return "site-packages" in filename or "dist-packages" in filename


@cache
def is_users(filename: str) -> bool:
    """Neither a library, nor Python's own code, nor Legroom's."""
    whole = str(Path(filename).resolve())
    return not (filename.startswith("<") or is_installed(whole) or whole.startswith((*STANDARD_LIBRARY, OWN_FOLDER)))


@cache
def parse(filename: str) -> ast.Module | None:
    lines = linecache.getlines(filename)
    if not lines:
        return None
    try:
        return ast.parse("".join(lines), filename)
    except (SyntaxError, ValueError):
        return None


def scope_of(code: CodeType) -> Scope | None:
    """The module, function or lambda that was compiled to this code."""
    tree = parse(code.co_filename)
    if tree is None or code.co_name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            if (name, start(node)[0]) == (code.co_name, code.co_firstlineno):
                return node
    return None


def class_around(filename: str, at: Position) -> str | None:
    """The name of the class whose code this is: private names are spelt with it."""
    tree = parse(filename)
    around = (
        [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and contains(node, at)] if tree else []
    )
    return around[-1] if around else None


def position(frame: FrameType) -> Position:
    """Where the frame is: the start of the expression that it is working on."""
    line, _, column, _ = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    if line is None or column is None:  # Python was told to keep no columns
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        return frame.f_lineno, len(text) - len(text.lstrip())
    return line, column


def start(node: ast.AST) -> Position:
    first = min([node, *getattr(node, "decorator_list", [])], key=lambda part: part.lineno)
    return first.lineno, first.col_offset


def contains(node: ast.AST, at: Position) -> bool:
    end: Position = (getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0))
    return hasattr(node, "lineno") and start(node) <= at < end


def body_of(scope: Scope) -> list[ast.stmt]:
    return [ast.copy_location(ast.Expr(scope.body), scope.body)] if isinstance(scope, ast.Lambda) else scope.body


def suites(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The indented blocks of a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
        yield part.body


def index_at(suite: list[ast.stmt], at: Position) -> int | None:
    return next((index for index, statement in enumerate(suite) if contains(statement, at)), None)


def suite_at(statement: ast.stmt, at: Position) -> list[ast.stmt] | None:
    """The block of a compound statement in which a position lies; None if it is in its head, or it has none."""
    return next((suite for suite in suites(statement) if index_at(suite, at) is not None), None)


def loops_around(scope: Scope, at: Position) -> list[ast.For | ast.While]:
    """The loops of this function in whose bodies the position lies, innermost first."""
    found: list[ast.For | ast.While] = []
    suite: list[ast.stmt] | None = body_of(scope)
    while suite is not None and (index := index_at(suite, at)) is not None:
        statement = suite[index]
        suite = None if isinstance(statement, FUNCTIONS) else suite_at(statement, at)
        if isinstance(statement, ast.For | ast.While) and suite is statement.body:
            found.insert(0, statement)
    return found


def names_bound(nodes: Iterable[ast.AST]) -> list[str]:
    """The variables that these statements assign or delete, in order, not those of functions and comprehensions in them."""
    names: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.append(node.id)
        if not isinstance(node, (*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef)):
            names += names_bound(ast.iter_child_nodes(node))
    return list(dict.fromkeys(names))


def names_read(nodes: Iterable[ast.AST]) -> list[str]:
    """The variables that these statements read, also in functions that they define."""
    names: list[str] = []
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        target = node.target if isinstance(node, ast.AugAssign) else node
        if isinstance(target, ast.Name) and (target is not node or isinstance(target.ctx, ast.Load)):
            names.append(target.id)
    return list(dict.fromkeys(names))


def names_counted(statements: Iterable[ast.stmt]) -> list[str]:
    """The variables that go up by a constant in these statements themselves: `step += 1`."""
    rows = [row for row in statements if isinstance(row, ast.AugAssign) and isinstance(row.op, ast.Add)]
    return [row.target.id for row in rows if isinstance(row.target, ast.Name) and isinstance(row.value, ast.Constant)]
