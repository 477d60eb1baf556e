"""The states of a run on disk: each file is written beside its place, synced, and put there in one go.

A line of JSON says what follows: which arrays, their shapes and types, and a checksum; then come their bytes. What cannot be
read in full is as good as not there. Each call of `fit` in a script has a number, and up to three files: the state at the
last end of an epoch, one from inside an epoch, and the state at its end.
"""

import json
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

Kind = Literal["epoch", "midway", "done"]
FORMAT = 1
AGAIN = "begin-again"  # a file: the data came in another order, so the epoch must be begun again
BEGIN_AGAIN = 75  # the exit code with it
DONE_KEPT = 20  # states of finished fits: of more than that, only the last ones


@dataclass(frozen=True)
class State:
    """All that training changes, and where it was. `arrays` are NumPy's; `facts` are plain."""

    facts: dict[str, Any]
    arrays: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Store:
    folder: Path

    def path(self, number: int, kind: Kind) -> Path:
        return self.folder / f"fit-{number}.{kind}"

    def write(self, number: int, kind: Kind, state: State) -> None:
        """May raise OSError; what was there before is then still there."""
        path = self.path(number, kind)
        new = path.with_name(path.name + ".new")
        parts = [bytes_of(array) for array in state.arrays]
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        kinds = [{"shape": list(array.shape), "dtype": array.dtype.name} for array in state.arrays]
        header = {"format": FORMAT, "facts": state.facts, "arrays": kinds, "checksum": checksum}
        with new.open("wb") as file:
            file.write(json.dumps(header).encode() + b"\n")
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        if kind == "epoch":
            self.drop(number, "midway")
        elif kind == "done":
            self.drop(number, "midway")
            self.drop(number, "epoch")
            for old in range(number - DONE_KEPT + 1):
                self.drop(old, "done")

    def read(self, number: int, kind: Kind) -> State | None:
        """The state, or None where there is none that is whole."""
        import numpy as np

        try:
            with self.path(number, kind).open("rb") as file:
                header = json.loads(file.readline())
                if header["format"] != FORMAT:
                    return None
                arrays, checksum = [], 0
                for entry in header["arrays"]:
                    dtype = dtype_of(entry["dtype"])
                    array = np.empty(entry["shape"], dtype)
                    part = file.read(array.nbytes)
                    checksum = zlib.crc32(part, checksum)
                    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(part, np.uint8)
                    arrays.append(array)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return State(header["facts"], arrays) if checksum == header["checksum"] else None

    def facts(self, number: int, kind: Kind) -> dict[str, Any] | None:
        """What the first line says, without the arrays: no NumPy is needed."""
        with suppress(OSError, ValueError, KeyError), self.path(number, kind).open("rb") as file:
            return dict(json.loads(file.readline())["facts"])
        return None

    def has(self, number: int) -> bool:
        """Whether anything of this fit was kept."""
        return any(self.path(number, kind).exists() for kind in get_args(Kind))

    def drop(self, number: int, kind: Kind) -> None:
        with suppress(OSError):
            self.path(number, kind).unlink()

    def newest(self) -> tuple[int, Kind] | None:
        """The fit that was going on, and the kind of its last state."""
        files = [path for path in self.folder.glob("fit-*.*") if path.suffix in (".epoch", ".midway", ".done")]
        if not files:
            return None
        last = max(files, key=lambda path: (int(path.stem[4:]), path.suffix == ".done", path.suffix == ".midway"))
        kind: Any = last.suffix[1:]
        return int(last.stem[4:]), kind


def bytes_of(array: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def dtype_of(name: str) -> Any:
    """Also of the types that NumPy does not know by itself."""
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
