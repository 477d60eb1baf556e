"""Seeds of TensorFlow's random operations in a graph that has the operations of a step more than once.

With a seed, of `tf.random.set_seed` or of an operation, each operation begins to draw where its seeds say: those of the last
slice, or of a smaller rest, would draw what those of the loop over the others have drawn, unless they are given seeds of their own.
Operations that run eagerly go on where the ones before them stopped, and are left alone.

Private name used, tested with TensorFlow 2.21.0: `tensorflow.python.framework.random_seed.get_seed`, which all of them ask.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

STRIDE = 0x3779B9B1  # between the seeds of one operation; operations are numbered from 0
LIMIT = 2**31 - 1


class Here(threading.local):
    """Which of the step's parts this thread is tracing: 0 is the loop."""

    part = 0


class Replaced:
    """For how many the seeds are replaced now."""

    lock = threading.Lock()
    count = 0
    original: Any = None


here = Here()


@contextmanager
def other_seeds(part: int = 1) -> Iterator[None]:
    """What this thread traces meanwhile draws other random numbers than the same operations traced outside."""
    before = here.part
    install()
    here.part = part
    try:
        yield
    finally:
        here.part = before
        uninstall()


def install() -> None:
    from tensorflow.python.framework import random_seed

    with Replaced.lock:
        Replaced.count += 1
        if Replaced.count == 1:
            Replaced.original = random_seed.get_seed
            random_seed.get_seed = moved_from(random_seed.get_seed)


def uninstall() -> None:
    from tensorflow.python.framework import random_seed

    with Replaced.lock:
        Replaced.count -= 1
        if not Replaced.count:
            random_seed.get_seed = Replaced.original


def moved_from(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(original)
    def get_seed(op_seed: Any) -> Any:
        import tensorflow as tf

        seeds = original(op_seed)
        if not here.part or tf.executing_eagerly() or None in seeds:
            return seeds
        return seeds[0], moved(seeds[1], here.part)

    return get_seed


def moved(seed: int, part: int) -> int:
    """Never 0, which with another 0 stands for no seed at all."""
    return (seed + STRIDE * part) % LIMIT or LIMIT
