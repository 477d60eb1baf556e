"""Who asked for an operation: the user's line, the Keras layer and the variable that are in the Python stack right now."""

import inspect
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

Place = Literal["user", "layer", "library"]
LIBRARIES = ("/site-packages/", "/__autograph_generated_file")
LAYER_CALL = ("keras/src/layers/layer.py", "__call__")


@cache
def place(code: CodeType) -> Place:
    """Whose code it is; asked once for each function."""
    path = Path(code.co_filename).as_posix()
    if path.endswith(LAYER_CALL[0]) and code.co_name == LAYER_CALL[1]:
        return "layer"
    legroom = Path(__file__).resolve().parents[2]
    if (
        "/site-packages/" in path
        or path.startswith("<")
        or Path(path).is_relative_to(legroom)
        or path.startswith(sys.base_prefix)
    ):
        return "library"
    return "user"


def self_in(frame: FrameType) -> Any:
    """The frame's `self`. Before Python 3.13 a function's `f_locals` is a copy that its frame keeps, and with it every
    tensor that had a name just then: so it is emptied at once."""
    names = frame.f_locals
    found = names.get("self")
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        names.clear()
    return found


def layer_and_line() -> tuple[str | None, str | None]:
    """The path of the innermost Keras layer that is being called, and "file:line" of the user's innermost frame."""
    layer, line = None, None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = place(frame.f_code)
        if owner == "layer" and layer is None:
            called = self_in(frame)
            layer = getattr(called, "path", None) or getattr(called, "name", None)
        elif owner == "user" and line is None:
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            if layer is not None:
                break
        frame = frame.f_back
    return layer, line


def variable_name() -> str | None:
    """The name of the variable whose method is running: Keras' path of it, or else TensorFlow's name."""
    frame: FrameType | None = sys._getframe(1)
    found: Any = None
    while frame is not None and place(frame.f_code) == "library":
        owner = self_in(frame)
        if hasattr(type(owner), "handle") and hasattr(type(owner), "assign_add"):
            found = getattr(owner, "path", None) or found or getattr(owner, "name", None)
        frame = frame.f_back
    return None if found is None else str(found)


def function_outputs(name: str) -> Any:
    """The specs of what the `tf.function` that is being called gives, if it is called from Python."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner: Any = self_in(frame)
        if type(owner).__name__ == "AtomicFunction" and owner.name.decode() == name:
            return owner.function_type.flat_outputs
        frame = frame.f_back
    return None
