"""Where a run keeps its states: a folder of its own, one run at a time, and gone when the run has ended well."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from legroom.errors import InputError
from legroom.running.speech import say

HOME = ".legroom"
TEMPORARY = "legroom-run-"
RUNS = 100  # of one script at a time


@contextmanager
def run_folder(script: str, given: str | None, *, resume: bool) -> Iterator[Path]:
    """The folder of this run. Emptied before a new run; what an earlier one has left is kept with `resume`."""
    name = re.sub(r"[^\w.-]+", "-", Path(script).stem) or "run"
    if given is not None:
        parent, name = Path(given).parent, Path(given).name
    else:
        parent = Path(HOME)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=parent):
            pass
    except OSError as error:
        if given is not None or resume:
            raise InputError(
                f"States cannot be kept in {parent}: {error.strerror}.",
                "Name a folder that can be written to with --checkpoints.",
            ) from error
        parent = Path(tempfile.mkdtemp(prefix=TEMPORARY))
        say(f"the current folder cannot be written to, so states are kept in {parent}.")
    for number in range(1, RUNS):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        lock = FileLock(f"{folder}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if given is not None:
                raise InputError(
                    f"Another run keeps its states in {folder}.", "Name another folder with --checkpoints."
                ) from None
            continue
        break
    else:
        raise InputError(f"{RUNS} runs of {script} are going on.", "Name a folder with --checkpoints.")
    try:
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.resolve()
    finally:
        lock.release()
        Path(f"{folder}.lock").unlink(missing_ok=True)
        if parent.name == HOME or parent.name.startswith(TEMPORARY):
            with suppress(OSError):  # other runs are going on, or this one has left something
                parent.rmdir()


def clear(folder: Path) -> None:
    """The run has ended well: nothing of it is needed any more."""
    shutil.rmtree(folder, ignore_errors=True)
