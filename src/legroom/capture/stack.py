"""The user's frames on the stack, and the functions that run in them."""

import gc
import inspect
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CellType, FrameType, FunctionType

from legroom.capture.syntax import is_installed, is_users


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The user's frames from the innermost; none if a library's code comes before them."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if is_users(filename):
            break
        frame = None if is_installed(filename) else frame.f_back  # contextlib may lie between
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def user_line(frame: FrameType | None) -> str | None:
    """`train.py:12`: the innermost line of the user's code, even if a library was called from there."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def arguments(frame: FrameType) -> list[str]:
    """The parameters of the frame's function, as its code orders them: positional, keyword-only, `*args`, `**kwargs`."""
    code = frame.f_code
    extra = [flag for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS) if code.co_flags & flag]
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + len(extra)])


def find_function(frame: FrameType) -> FunctionType:
    """The function that runs in a frame; made anew if nobody holds it any more."""
    code, local = frame.f_code, frame.f_locals

    def fits(function: FunctionType) -> bool:
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        with suppress(ValueError):  # an empty cell
            return all(name in local and cell.cell_contents is local[name] for name, cell in cells)
        return False

    for holder in gc.get_referrers(code):
        if isinstance(holder, FunctionType) and holder.__code__ is code and fits(holder):
            return holder
    cells = tuple(CellType(local[name]) if name in local else CellType() for name in code.co_freevars)
    return FunctionType(code, frame.f_globals, code.co_name, None, cells)
