"""An eager training step, captured when its first GradientTape is entered: before anything of it has run.

The step is the body of the innermost loop around the tape in which the gradients are applied too, as a function of the
batch; or, where a function is called for each batch, that function with the arguments of its first call. What the frames
on the stack hold at that moment is what the step starts from.
"""

import ast
import inspect
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType, FunctionType, MethodType
from typing import Any

from legroom.capture.batch import Tree, batch_of, iter_specs
from legroom.capture.conditions import Turn
from legroom.capture.keras_execution import framework_version
from legroom.capture.keras_fit import layer_names
from legroom.capture.reach import Condition, Found, Search, Test, assigns, function_of, optimizes, takes_gradients
from legroom.capture.stack import arguments, find_function, user_frames
from legroom.capture.step_function import Body
from legroom.capture.syntax import (
    Position,
    Scope,
    body_of,
    class_around,
    index_at,
    loops_around,
    names_bound,
    names_counted,
    names_read,
    position,
    scope_of,
    suite_at,
)
from legroom.capture.tf_step import FunctionStep, argument_specs, closure_layers, closure_notes
from legroom.records import Step

REASON = "a GradientTape outside any @tf.function"
UNWRAPPED = ast.If | ast.With | ast.Try | ast.Match  # a step may start inside of these: they have been entered already


@dataclass(frozen=True)
class Stand:
    """A frame of the user's code, and where in its source it is."""

    frame: FrameType
    scope: Scope
    at: Position

    @cached_property
    def names(self) -> dict[str, Any]:
        return {**self.frame.f_globals, **self.frame.f_locals}

    @property
    def filename(self) -> str:
        return self.frame.f_code.co_filename

    def place(self, node: ast.AST | None = None) -> str:
        return f"{Path(self.filename).name}:{self.at[0] if node is None else getattr(node, 'lineno', self.at[0])}"

    def search(self, test: Test) -> Search:
        return Search(test, self.names, self.at)


@dataclass(frozen=True)
class Chosen:
    """The statements that are run for every batch, in a loop or in a function of their own, and where they apply gradients."""

    stand: Stand
    statements: list[ast.stmt]
    loop: ast.For | ast.While | None
    applied: tuple[Found, ...]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple(dict.fromkeys(condition for found in self.applied for condition in found.conditions))

    def applied_in(self, nodes: Sequence[ast.AST]) -> int:
        """How many of the places that apply gradients lie in these."""
        inside = {inner for node in nodes for inner in ast.walk(node)}
        return sum(found.node in inside for found in self.applied)


def capture_tape(frame: FrameType) -> FunctionStep | None:
    """The training step around the tape that `frame` is entering; None if it is none, or its code cannot be read."""
    scopes = [(inner, scope_of(inner.f_code)) for inner in user_frames(frame)]
    stands = [Stand(inner, scope, position(inner)) for inner, scope in scopes if scope is not None]
    chosen = choose(stands)
    if chosen is None:
        return None
    with suppress(SyntaxError):
        return body_step(chosen) if chosen.loop is not None else call_step(chosen)
    return None


def choose(stands: Sequence[Stand]) -> Chosen | None:
    """The innermost loop or function that both takes and applies gradients; an optimizer is preferred to plain assignments."""
    for test in (optimizes, assigns):
        taken = False
        for stand in stands:
            found: list[Chosen] = []
            for loop in (*loops_around(stand.scope, stand.at), None):
                statements = body_of(stand.scope) if loop is None else loop.body
                ahead = statements[index_at(statements, stand.at) or 0 :] if loop is None else statements
                taken = taken or stand.search(takes_gradients).first(ahead) is not None
                applied = tuple(stand.search(test).every(ahead))
                if applied:
                    found.append(Chosen(stand, statements, loop, applied))
            if found:
                return widest(found) if taken else None
    return None


def widest(found: Sequence[Chosen]) -> Chosen:
    """The innermost, or what lies around it and applies another optimizer for the same batch: a GAN's several critic steps."""
    best = found[0]
    for outer in found[1:]:
        for_one_batch = outer.loop is not None or any(
            is_batch(outer.stand.names.get(n)) for n in arguments(outer.stand.frame)
        )
        if for_one_batch and len(outer.applied) > len(best.applied):
            best = outer
    return best


def split(chosen: Chosen, batch: Sequence[str]) -> tuple[list[ast.stmt], list[ast.stmt], list[ast.stmt]]:
    """What runs before the tape outside its block, what runs before it in its block, and the rest of that block.

    The block is the whole body, or one in it that applies the gradients too, if the batch is fetched or changed in there.
    """
    at, suite, outside = chosen.stand.at, chosen.statements, list[ast.stmt]()
    best = None
    while True:
        index = index_at(suite, at) or 0
        before = suite[:index]
        if best is None or ({*names_bound(before)} & {*batch} if batch else before):
            best = (outside, before, suite[index:])
        inner = suite_at(suite[index], at) if isinstance(suite[index], UNWRAPPED) else None
        if inner is None or chosen.applied_in(inner) < len(chosen.applied):
            return best
        outside, suite = [*outside, *before], inner


def is_batch(value: Any) -> bool:
    """An array or tensor, or arrays in any nesting; single numbers do not count."""
    with suppress(TypeError, ValueError):
        return any(spec.shape for spec in iter_specs(argument_specs(value)))
    return False


def body_step(chosen: Chosen) -> FunctionStep:
    """The statements as a function of the arrays that a turn of the loop (or a call of the function) begins with.

    These are the loop's own variables. Where one of them is assigned anew before the tape, and where the loop has none and
    fetches its batch itself, the step begins after that, with what has been fetched.
    """
    stand, loop = chosen.stand, chosen.loop
    own = arguments(stand.frame)
    targets = own if loop is None else names_bound([loop.target]) if isinstance(loop, ast.For) else []
    batch = [name for name in targets if is_batch(stand.names.get(name))]
    done, before, rest = split(chosen, batch)
    if isinstance(stand.scope, ast.Module) and loop is None:
        rest = rest[: 1 + max(number for number, row in enumerate(rest) if chosen.applied_in([row]))]
    cut = 0 if batch else len(before)
    while True:
        given = [*batch, *(name for name in names_bound([*done, *before[:cut]]) if is_batch(stand.names.get(name)))]
        again = [number for number, row in enumerate(before) if number >= cut and {*names_bound([row])} & {*given}]
        if not again:
            break
        cut = again[-1] + 1
    statements = [*before[cut:], *rest]
    read = names_read(statements)
    parameters = [name for name in dict.fromkeys(given) if name in read]
    names = dict(stand.names)
    counting = [] if loop is None else [*targets, *names_counted(chosen.statements)]
    counters = [name for name in counting if type(names.get(name)) is int]
    notes = Turn(names, counters, statements).reach(chosen.conditions, stand.place)
    body = Body(
        statements,
        parameters,
        stand.frame.f_code,
        class_around(stand.filename, stand.at),
        own[0] if own else None,
        None if loop is not None else names_bound([*done, *before[:cut]]),
    )
    args = tuple(argument_specs(stand.names[name]) for name in parameters)
    used = [names[name] for name in read if name in names and name not in parameters]
    kind = "eager step" if loop is None else "eager loop"
    return finish(body.function(names), (args, {}), f"{kind} {stand.place(loop)}", used, notes)


def call_step(chosen: Chosen) -> FunctionStep:
    """The function itself, with the arguments of this call; its rest, if it has changed them or fetched its batch itself."""
    stand = chosen.stand
    code, local = stand.frame.f_code, stand.frame.f_locals
    names = arguments(stand.frame)
    batch = [name for name in names if is_batch(local.get(name))]
    done, before, _ = split(chosen, batch)
    bound = names_bound([*done, *before])
    fetched = not batch and any(is_batch(local.get(name)) for name in bound)
    endless = code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
    if isinstance(stand.scope, ast.Module) or endless or fetched or {*bound} & {*names} or not {*names} <= {*local}:
        return body_step(chosen)
    info = inspect.getargvalues(stand.frame)
    plain = [name for name in names if name not in (info.varargs, info.keywords)]
    positional = plain[: code.co_argcount]
    args = [local[name] for name in positional] + list(local[info.varargs] if info.varargs else ())
    kwargs = {name: local[name] for name in plain[code.co_argcount :]} | (local[info.keywords] if info.keywords else {})
    function: FunctionType | MethodType = find_function(stand.frame)
    if positional and positional[0] in ("self", "cls"):
        function = MethodType(function, args.pop(0))
    notes = Turn(stand.names, (), chosen.statements).reach(chosen.conditions, stand.place)
    used = [function, *(value for value in (*args, *kwargs.values()) if not is_batch(value))]
    specs = (argument_specs(tuple(args)), argument_specs(kwargs))
    return finish(function, specs, f"eager function {code.co_name} {stand.place(stand.scope)}", used, notes)


def capture_split(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FunctionStep:
    """An eager step that Legroom runs in slices of its batch, with the whole batch that it is called with."""
    original = inspect.unwrap(function)
    code = original.__code__
    used = [original, *(value for value in (*args, *kwargs.values()) if not is_batch(value))]
    specs = (argument_specs(args), argument_specs(kwargs))
    source = f"eager function {code.co_name} {Path(code.co_filename).name}:{code.co_firstlineno}"
    return finish(function, specs, source, used, ())


def layers_of(values: Sequence[Any]) -> tuple[str, ...]:
    """The layers of all Keras models among these, in the functions among them, and one step into other objects."""
    import keras

    names: list[str] = []
    for value in values:
        if isinstance(value, keras.Layer):
            names += layer_names(value)
        elif isinstance(value, FunctionType | MethodType) or function_of(value) is not None:
            with suppress(ValueError, TypeError):
                names += closure_layers(value if isinstance(value, MethodType) else function_of(value))
        if isinstance(fields := getattr(value, "__dict__", None), dict) and not isinstance(value, keras.Layer):
            names += [
                name for model in fields.values() if isinstance(model, keras.Layer) for name in layer_names(model)
            ]
    return tuple(dict.fromkeys(names))


def finish(
    function: FunctionType | MethodType,
    specs: tuple[Tree, Tree],
    source: str,
    used: Sequence[Any],
    notes: tuple[str, ...],
) -> FunctionStep:
    import keras

    step = Step(
        framework="tensorflow",
        framework_version=framework_version("tensorflow"),
        keras_version=keras.__version__,
        source=source,
        execution="eager",
        execution_reason=REASON,
        batch=batch_of(specs),
        parameters=(),
        policy=keras.mixed_precision.dtype_policy().name,
        layers=layers_of(used),
        notes=(*closure_notes(*specs), *notes),
    )
    return FunctionStep(function, *specs, step)
