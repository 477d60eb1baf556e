"""Native code that complains about what Legroom tries out on made-up data: the user has no use for its lines."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO


@contextmanager
def unheard() -> Iterator[None]:
    """What is printed meanwhile is dropped, also by TensorFlow's C++ (which writes to the file itself)."""
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, ValueError, AttributeError):  # no stderr
        with redirect_stdout(StringIO()):
            yield
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        with redirect_stdout(StringIO()):
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
