"""A worker process: `python -m legroom.data.worker SOCKET SLOT`. It makes batches of a user's samples until its parent is gone.

What it runs was pickled by the parent. Functions of the parent's script are found by running that script under another name than
`__main__`, as multiprocessing does.
"""

import os
import pickle
import runpy
import sys
import types
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import psutil

from legroom.data.buffers import Buffers
from legroom.data.slot import Slot
from legroom.data.sources.collating import collate
from legroom.errors import LegroomError

INSIDE = "LEGROOM_WORKER"


class Failed(Exception):  # said to the parent, never raised to a user
    """A sample could not be made."""

    def __init__(self, place: int, text: str) -> None:
        super().__init__(text)
        self.place, self.text = place, text


def main() -> None:
    pipe, slot = Connection(int(sys.argv[1])), Slot(int(sys.argv[2]))
    try:
        sent = pipe.recv()
        if sent["main"] is not None:
            become(sent["main"])
        work = pickle.loads(sent["work"])
        pipe.send(("ready", int(psutil.Process().memory_info().rss)))
        while True:
            size, given, indices = pipe.recv()
            pipe.send(answer(work, slot.get(size, given), indices, slot))
    except (EOFError, ConnectionError):  # the parent is gone, or done
        return
    except BaseException as error:  # noqa: BLE001 - before it was ready: said where somebody hears it
        text = str(error) if isinstance(error, LegroomError) else f"{type(error).__name__}: {error}"
        pipe.send(("broken", text))


def become(path: str) -> None:
    """The parent's script as this process's main module."""
    module = types.ModuleType("__mp_main__")
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    module.__dict__.update(runpy.run_path(path, run_name="__mp_main__"))


def answer(work: Any, given: Any, indices: Any, slot: Slot) -> tuple[Any, ...]:
    """A batch in the slot, or what went wrong."""

    def samples() -> Any:
        for place in range(len(indices)):
            try:
                made = work.sample(given, place)
            except LegroomError:
                raise
            except Exception as error:
                raise Failed(place, f"{type(error).__name__}: {error}") from error
            yield made

    try:
        batch = collate(samples(), np.asarray(indices), str, Buffers())
    except Failed as error:
        return ("failed", error.place, error.text)
    except LegroomError as error:
        return ("refused", error.message, error.hint)
    return ("batch", *slot.put(batch))


if __name__ == "__main__":
    os.environ[INSIDE] = "1"
    main()
