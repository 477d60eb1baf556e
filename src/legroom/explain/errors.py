"""An exception as text that the readers know, with the line of the user's code and the Keras layer that its traceback names."""

import linecache
import os
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

from legroom.explain.readers.traceback import LIBRARY

DEEPEST = 40
OURS = str(Path(__file__).resolve().parents[1]) + os.sep  # frames of `legroom run` and of the guard are not the user's


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those behind it, each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen and len(seen) < DEEPEST:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def text_of(error: BaseException) -> str:
    """Like Python prints it, without the lines of code."""
    parts: list[str] = []
    for inner in reversed(list(chain(error))):
        parts.append("Traceback (most recent call last):")
        parts += [
            f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
            for frame, line in frames(inner)
        ]
        parts.append(f"{type(inner).__module__}.{type(inner).__name__}: {message_of(inner)}")
    return "\n".join(parts)


def message_of(error: BaseException) -> str:
    """What it says of itself; an exception whose `__str__` fails says nothing."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an explanation must not fail on somebody else's exception
        return ""


def frames(error: BaseException) -> list[tuple[FrameType, int]]:
    found: list[tuple[FrameType, int]] = []
    step: TracebackType | None = error.__traceback__
    while step is not None:
        found.append((step.tb_frame, step.tb_lineno))
        step = step.tb_next
    return found[-200:]


def notes_of(error: BaseException) -> tuple[str | None, str | None]:
    """The innermost line of the user's own code, with its text, and the innermost Keras layer that was being called."""
    place: str | None = None
    layer: str | None = None
    for inner in reversed(list(chain(error))):
        for frame, line in frames(inner):
            file, name = frame.f_code.co_filename, frame.f_code.co_name
            if not LIBRARY.search(file) and not file.startswith(OURS):
                code = linecache.getline(file, line).strip()
                place = f"{file}:{line} in {name}" + (f": {code}" if code else "")
            if name in ("call", "__call__", "build", "add_weight"):
                layer = layer_name(frame) or layer
    return place, layer


def layer_name(frame: FrameType) -> str | None:
    """The name of the Keras layer whose method this is. Models are layers too, and hold the one that is meant."""
    holder = frame.f_locals.get("self")
    kinds = {cls.__name__ for cls in type(holder).__mro__}
    if "Layer" not in kinds or "Model" in kinds:
        return None
    name = getattr(holder, "name", None)
    return name if isinstance(name, str) else None
