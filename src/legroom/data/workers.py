"""A user's own Python over samples (a sequence, a `transform`), run by several processes.

Rows are read here, where threads are enough, and given to a worker in memory that both share; the batch comes back the same way.
Which worker makes a batch decides nothing: batches are handed over in their order. Workers are started from nothing, never forked,
because a framework's threads would not be there after a fork; each holds Python, NumPy and what the samples' code imports.
"""

import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import weakref
from multiprocessing.connection import Connection
from typing import Any

from legroom.data.buffers import Buffers
from legroom.data.slot import Slot, slot_file
from legroom.data.structure import mapped
from legroom.data.worker import INSIDE
from legroom.errors import InputError, LegroomError
from legroom.units import format_bytes

OWN = {INSIDE: "1", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}  # no worker takes a part of the GPU
GONE = (EOFError, ConnectionError, OSError)


class Worker:
    def __init__(self, sent: dict[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        self.slot = Slot(slot_file())
        command = [sys.executable, "-m", "legroom.data.worker", str(theirs.fileno()), str(self.slot.file)]
        env = {"OMP_NUM_THREADS": "1", **os.environ, **OWN, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(command, pass_fds=(theirs.fileno(), self.slot.file), env=env)
        theirs.close()
        self.pipe = Connection(ours.detach())
        self.resident_bytes: int | None = None
        self.send(sent)

    def send(self, message: Any) -> None:
        try:
            self.pipe.send(message)
        except GONE:  # seen again, and said, when its answer is awaited
            return

    def ready(self) -> None:
        if self.resident_bytes is None:
            kind, found = self.pipe.recv()
            if kind != "ready":
                raise InputError(f"A worker process could not begin: {found}", HOW_TO_BEGIN)
            self.resident_bytes = found

    def ended(self) -> str:
        """How the process ended."""
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended (exit code {code})"

    def close(self) -> None:
        self.pipe.close()
        os.close(self.slot.file)
        try:
            self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


HOW_TO_BEGIN = (
    "Define the transform or the sequence in a module of its own, or put what the script does under"
    ' `if __name__ == "__main__":`, because workers import it.'
)


class Workers:
    """A source whose samples are made by `count` processes, started with the first batch."""

    copies = 3  # of a batch, beside the one that is handed over: as rows, in the slot, and in the worker

    def __init__(self, source: Any, count: int) -> None:
        if os.environ.get(INSIDE):
            raise InputError("A worker process makes a stream with workers of its own.", HOW_TO_BEGIN)
        self.source, self.count = source, count
        self.length, self.held_bytes, self.notes, self.name = (
            *(source.length, source.held_bytes, source.notes),
            source.name,
        )
        work = pickled(source.work)
        script = getattr(sys.modules["__main__"], "__file__", None) if b"__main__" in work else None
        self.sent = {"work": work, "main": script}
        self.free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self.alive: list[Worker] = []
        self.lock = threading.Lock()
        weakref.finalize(self, close_all, self.alive)

    def batch(self, indices: Any, buffers: Buffers) -> Any:
        rows = self.source.rows(indices)
        with self.lock:
            while len(self.alive) < self.count:
                self.alive.append(Worker(self.sent))
                self.free.put(self.alive[-1])
        worker = self.free.get()
        try:
            worker.ready()
            worker.send((*worker.slot.put(rows), indices))
            kind, *found = worker.pipe.recv()
            if kind == "batch":
                return mapped(worker.slot.get(*found), lambda array: copied(array, buffers))
        except GONE as error:
            raise self.died(worker, indices) from error
        except InputError:
            self.forget(worker)
            raise
        finally:
            if worker in self.alive:
                self.free.put(worker)
        if kind == "refused":
            raise InputError(*found)
        raise InputError(
            f"Sample {self.name(int(indices[found[0]]))} could not be read: {found[1]}.",
            "No step has seen a part of its batch. Repair or leave out the sample, then go on from the stream's state.",
        )

    def died(self, worker: Worker, indices: Any) -> LegroomError:
        how = worker.ended()
        self.forget(worker)
        first, last = self.name(int(indices[0])), self.name(int(indices[-1]))
        return LegroomError(
            f"A worker process {how} while it made {len(indices)} samples, from {first} to {last} in the epoch's order.",
            "No step has seen a part of their batch. Where memory ran out, use fewer workers; then go on from the stream's state.",
        )

    def forget(self, worker: Worker) -> None:
        with self.lock:
            if worker in self.alive:
                self.alive.remove(worker)
        worker.close()

    def reading_bytes(self) -> int:
        return int(self.source.reading_bytes())

    def said(self) -> str:
        most = max((worker.resident_bytes or 0 for worker in self.alive), default=0)
        return f"{self.count} worker processes hold up to {format_bytes(most)} each, beside the budget"


def copied(array: Any, buffers: Buffers) -> Any:
    if array.dtype.kind == "O":
        return array
    out = buffers.take(array.shape, array.dtype)
    out[...] = array
    return out


def pickled(work: Any) -> bytes:
    try:
        return pickle.dumps(work)
    except Exception as error:  # pickle raises whatever the objects do
        raise InputError(
            f"This cannot be sent to worker processes: {type(error).__name__}: {error}.",
            "Define the transform or the sequence at the top level of a module (no lambda), or leave `workers` out.",
        ) from error


def close_all(alive: list[Worker]) -> None:
    for worker in alive:
        worker.close()
    alive.clear()
