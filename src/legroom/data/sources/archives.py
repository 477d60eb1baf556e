"""`.npz` archives: members that were stored are read where they lie, compressed ones from a scratch file."""

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from legroom.data.sources.files import FileColumn, read_header
from legroom.data.sources.options import Options, chosen, names_in
from legroom.data.sources.scratch import rows_of_a_block
from legroom.errors import InputError

LOCAL_HEADER = 30  # bytes before a member's name, of which the last four say how long the name and the extra field are


def npz_columns(path: str | Path, options: Options) -> Any:
    wanted = names_in(options.columns)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            named = {
                name: member_column(path, archive, info, options) if wanted is None or name in wanted else None
                for name, info in members.items()
            }
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is no readable .npz file: {error}.", "Write it with np.savez.") from error
    return chosen(named, options.columns, str(path))


def member_column(path: str | Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, options: Options) -> Any:
    what = f"{path}[{info.filename.removesuffix('.npy')!r}]"
    with archive.open(info) as member:
        shape, fortran, dtype = read_header(member)
        header = member.tell()
        if not shape or fortran or dtype.hasobject:
            raise InputError(
                f"{what} has no rows of numbers one after another.",
                "Name the arrays to train on in `columns`: numbers in C order, with the samples along the first axis.",
            )
        length, rows = shape[0], tuple(shape[1:])
        if info.compress_type != zipfile.ZIP_STORED:
            return options.from_blocks(blocks_of(member, length, rows, dtype), length, rows, dtype, what)
    with open(path, "rb") as file:
        file.seek(info.header_offset + LOCAL_HEADER - 4)
        name, extra = struct.unpack("<HH", file.read(4))
    column = FileColumn(path, info.header_offset + LOCAL_HEADER + name + extra + header, length, rows, dtype)
    column.path = what
    return options.by_index(column)


def blocks_of(member: Any, length: int, shape: tuple[int, ...], dtype: Any) -> Iterator[Any]:
    row = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    step = rows_of_a_block(row)
    for start in range(0, length, step):
        count = min(step, length - start)
        data = member.read(count * row)
        if len(data) < count * row:
            return
        yield np.frombuffer(data, dtype).reshape((count, *shape))
