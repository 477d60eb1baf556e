"""Keras' CSVLogger in a training that is resumed: its rows go on where they were, instead of from an empty file."""

import csv
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any


def go_on(callbacks: Iterable[Any], epoch: int) -> None:
    """Keep the rows of the epochs before this one, and let the loggers append to them."""
    import keras

    for callback in callbacks:
        if isinstance(callback, keras.callbacks.CSVLogger):
            with suppress(OSError):  # no file yet, or one that cannot be written: the logger says so itself
                keep_rows(Path(callback.filename), callback.sep, epoch)
                callback.append = True


def keep_rows(path: Path, separator: str, epoch: int) -> None:
    """Take away the last rows, those from this epoch on. A row that was being written when the process was killed is one of them."""
    with path.open(newline="") as file:
        lines = file.readlines()
    while len(lines) > 1 and not is_before(lines[-1], separator, epoch):
        lines.pop()
    path.write_text("".join(lines), newline="")


def is_before(line: str, separator: str, epoch: int) -> bool:
    first = next(csv.reader([line], delimiter=separator), [""])[0]
    return line.endswith("\n") and first.isdigit() and int(first) < epoch
