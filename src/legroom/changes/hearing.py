"""Every operation that this thread runs eagerly, or traces, told to whoever wants to hear of it.

Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.framework.op_callbacks`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def hearing(heard: Callable[..., None]) -> Iterator[None]:
    """Meanwhile `heard` is called after each operation: its kind, what it took, its attributes, what it gave, its name, and `graph=` where it is only traced."""
    from tensorflow.python.framework import op_callbacks

    op_callbacks.add_op_callback(heard)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(heard)
