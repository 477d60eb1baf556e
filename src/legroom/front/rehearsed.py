"""What a rehearsal can be of, besides a script: a function of the user's, by its name. It runs in another process, so it
must be importable there."""

import os
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

from legroom.errors import InputError
from legroom.front.child import require_target

Environment = dict[str, str]
WHAT_TO_PASS = (
    'Pass a script ("train.py"), "module:function", a function at the top level of a module that returns (compiled model, batch), '
    "or a compiled Keras model and a batch."
)


def named_step(step: Any) -> tuple[str, Environment]:
    """A target for the child, and how it finds the modules that this process would find."""
    if isinstance(step, str):
        require_target(step)
        return step, {}
    if not isinstance(step, FunctionType):
        raise InputError(f"Cannot rehearse a value of type {type(step).__name__}.", WHAT_TO_PASS)
    name = step.__qualname__
    if "<" in name or "." in name or step.__closure__:
        raise InputError(
            f"{name} is not a function at the top level of a module: no other process can call it.", WHAT_TO_PASS
        )
    module = sys.modules.get(step.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or getattr(module, name, None) is not step:
        raise InputError(
            f"{name} belongs to no file that another process could import (a notebook's or a prompt's functions do not).",
            WHAT_TO_PASS,
        )
    path = Path(file).resolve()
    folders = [str(path.parent)] if step.__module__ == "__main__" else []
    target = path.stem if step.__module__ == "__main__" else step.__module__
    other = Path.cwd() / f"{target.replace('.', '/')}.py"  # the current folder is looked into first
    if other.is_file() and path.name != "__init__.py" and not other.samefile(path):
        raise InputError(
            f"There are two modules {target}: {path}, and {other} in this folder.", "Run from another folder."
        )
    return f"{target}:{name}", same_path(folders)


def same_path(first: list[str]) -> Environment:
    """The child looks for modules where this process does."""
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys([*first, *(folder for folder in sys.path if folder)]))}
