"""Running a user's script up to its first training step, and stopping it cleanly there."""

import ast
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from legroom.capture.frames import first_line, user_frames
from legroom.capture.hooks import install
from legroom.capture.keras_fit import KerasStep
from legroom.capture.tf_step import FunctionStep
from legroom.errors import InputError, LegroomError

MAX_STOPS = 3  # a script that swallows the stop with a bare `except:` and trains on is ended the hard way

OnCaptured = Callable[[KerasStep | FunctionStep], None]


class StopScript(BaseException):
    """Unwinds the user's script from its training call; a BaseException so that `except Exception` lets it pass."""


class Stop:
    """What the hooks tell: hands the first step over, remembers why there is none, and unwinds the script each time."""

    def __init__(self, on_captured: OnCaptured) -> None:
        self.on_captured = on_captured
        self.training = False
        self.error: LegroomError | None = None
        self.stops = 0

    def captured(self, step: KerasStep | FunctionStep) -> NoReturn:
        first, self.training = not self.stops, True
        if first:
            self.on_captured(step)
        self.unwind()

    def refused(self, error: LegroomError) -> NoReturn:
        if not self.stops:
            self.error = error
        self.unwind()

    def unwind(self) -> NoReturn:
        self.stops += 1
        if self.stops > MAX_STOPS and self.error is None:
            sys.stdout.flush()
            os._exit(0)
        raise StopScript


def run_script(path: Path, arguments: Sequence[str], on_captured: OnCaptured) -> None:
    """Run the script as `python path arguments…` would, or, where it imports from its own package, `python -m package.script`, until it trains.
    Returns when it was captured and stopped.

    Raises InputError when it ends, raises or exits before it trains.
    """
    sys.argv = [str(path), *arguments]
    module = as_module(path)
    sys.path.insert(0, str(path.resolve().parent if module is None else module[0]))
    stop = Stop(on_captured)
    install(stop)
    try:
        if module is None:
            runpy.run_path(str(path), run_name="__main__")
        else:
            runpy.run_module(module[1], run_name="__main__", alter_sys=True)
    except StopScript:
        pass
    except LegroomError as error:
        stop.error = stop.error or error
    except SystemExit as error:
        if stop.stops == 0:
            code = error.code if error.code is not None else 0
            raise InputError(
                f"{path} called sys.exit({code!r}) before it trained.",
                "Pass the arguments it needs after the script's name, e.g. `legroom estimate train.py -- --data tiny`.",
            ) from None
    except BaseException as error:
        if stop.stops == 0:
            raise InputError(
                f"{path} raised {type(error).__name__} before it trained: {first_line(error)}\n{user_frames(error)}",
                "Run the script by itself and mend it first.",
            ) from error
    if stop.error is not None:
        raise stop.error
    if stop.stops == 0:
        raise InputError(
            f"{path} ended without training: no fit, no train_on_batch and no step with a GradientTape was called.",
            'Check that training is not behind `if __name__ == "...":` or a flag, or use module:function that returns (model, batch).',
        )


def as_module(path: Path) -> tuple[Path, str] | None:
    """The folder and the name to run a script by that says `from .model import …`; None for all others."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # Python will say it better
        return None
    if not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
        return None
    path = path.resolve()
    root = path.parent
    while (root / "__init__.py").exists():
        root = root.parent
    if root == path.parent:  # no __init__.py: a package by where it is started
        root = next((here for here in (Path.cwd(), path.parent.parent) if here in path.parent.parents), path.parent)
    return root, ".".join(path.relative_to(root).with_suffix("").parts)
