"""An error while data is read under TensorFlow, as what it was: TensorFlow makes a text of it on the way through its graph."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from legroom.errors import LegroomError


@contextmanager
def failures_told(data: Any) -> Iterator[None]:
    """Meanwhile, a TensorFlow error that a stream's own error caused is raised as that one."""
    try:
        yield
    except Exception as error:
        cause = getattr(data, "failure", None)
        if isinstance(cause, LegroomError) and type(error).__module__.startswith("tensorflow"):
            raise cause from error
        raise
