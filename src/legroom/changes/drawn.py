"""Random numbers of the user's process. Keras draws the seeds of new layers, and of its own generator, from Python's `random`;
what Legroom makes is not to change what the script draws next."""

import random
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_drawn() -> Iterator[None]:
    """Afterwards Python's random numbers go on as if none had been taken."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
