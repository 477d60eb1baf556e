"""TFRecord files, by index: where each record lies is read once from the lengths in the files, eight bytes a record.

A record that is a `tf.train.Example` becomes a dictionary of its features; with a `transform`, it is given the record's bytes.
"""

import os
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from legroom.data.sources.columns import Samples, Then, named
from legroom.data.sources.options import Options, chosen, needs
from legroom.errors import InputError

HEAD, TAIL = 12, 4  # a record's length and its checksum before it, the checksum of its bytes after it


class Records:
    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.files = [os.open(path, os.O_RDONLY) for path in paths]
        found = [offsets_of(path) for path in paths]
        self.starts = np.concatenate(found) if found else np.zeros(0, np.int64)
        self.ends = np.cumsum([len(offsets) for offsets in found])
        self.length = len(self.starts)

    def __del__(self) -> None:
        for file in getattr(self, "files", ()):
            os.close(file)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "files"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.files = [os.open(path, os.O_RDONLY) for path in self.paths]

    def place(self, index: int) -> tuple[int, int]:
        """Which file it is in, and its number there."""
        number = int(np.searchsorted(self.ends, index, side="right"))
        return number, index - (int(self.ends[number - 1]) if number else 0)

    def name(self, index: int) -> str:
        file, number = self.place(index)
        return f"{index} (record {number} of {self.paths[file]})"

    def read(self, index: int) -> bytes:
        file, start = self.files[self.place(index)[0]], int(self.starts[index])
        head = os.pread(file, HEAD, start)
        size = struct.unpack("<Q", head[:8])[0] if len(head) == HEAD else 0
        data = os.pread(file, size + TAIL, start + HEAD)
        if len(head) < HEAD or len(data) < size + TAIL:
            raise ValueError("the file has become shorter")
        if masked(checksum(data[:size])) != struct.unpack("<I", data[size:])[0]:
            raise ValueError("its checksum is wrong")
        return data[:size]


def offsets_of(path: Path) -> Any:
    """Where each record begins."""
    offsets: list[int] = []
    at = 0
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        while at < end:
            file.seek(at)
            head = file.read(HEAD)
            if len(head) < HEAD or masked(checksum(head[:8])) != struct.unpack("<I", head[8:])[0]:
                raise InputError(
                    f"{path} is no TFRecord file from byte {at:,} on (record {len(offsets):,}).",
                    "Write it again; a compressed file has to be unpacked first.",
                )
            offsets.append(at)
            at += HEAD + struct.unpack("<Q", head[:8])[0] + TAIL
    if at > end:
        raise InputError(f"{path} is cut off in record {len(offsets) - 1:,}.", "Write it again.")
    return np.array(offsets, np.int64)


def checksum(data: bytes) -> int:
    try:
        import google_crc32c
    except ImportError as error:
        raise needs("google-crc32c", "data", "TFRecord files") from error
    return int(google_crc32c.value(data))


def masked(checksum_: int) -> int:
    """The form in which TFRecord files hold it (TensorFlow's tsl/lib/hash/crc32c.h)."""
    return ((checksum_ >> 15 | checksum_ << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record_samples(paths: list[Path], options: Options) -> Samples:
    records = Records(paths)
    options.held_bytes += records.starts.nbytes
    if options.transform is not None:
        read = partial(named, records.read, records.name)
        return Samples(records.length, Then(read, options.transform), records.name)
    try:
        import tensorflow.core.example.example_pb2  # noqa: F401
    except ImportError as error:
        raise needs("TensorFlow", "tensorflow", "Examples in TFRecord files") from error
    return Samples(records.length, Then(records.read, partial(features, options.columns)), records.name)


def features(columns: Any, record: bytes) -> Any:
    from tensorflow.core.example.example_pb2 import Example

    example = Example.FromString(record)
    found = {name: values(feature) for name, feature in sorted(example.features.feature.items())}
    return chosen(found, columns, "the record")


def values(feature: Any) -> Any:
    kind = feature.WhichOneof("kind")
    if kind == "bytes_list":
        texts = list(feature.bytes_list.value)
        return texts[0] if len(texts) == 1 else np.array(texts, dtype=object)
    listed = feature.float_list.value if kind == "float_list" else feature.int64_list.value if kind else ()
    array = np.array(listed, np.float32 if kind == "float_list" else np.int64)
    return array[0] if len(array) == 1 else array
