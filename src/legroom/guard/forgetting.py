"""An exception keeps alive what it went through: a failed eager step's tensors hang on its traceback."""

import gc
import traceback


def forget(error: BaseException | None) -> None:
    """Let go of everything that this exception, and those behind it, hold."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [one.__cause__, one.__context__]
        if one.__traceback__ is not None:
            traceback.clear_frames(one.__traceback__)
            one.__traceback__ = None
    gc.collect()
