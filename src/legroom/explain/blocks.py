"""A log as blocks of whole lines, however it was written: UTF-8 or not, UTF-16 from PowerShell, lines without an end."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from legroom.errors import InputError

BLOCK_BYTES = 256 * 1024
LOOKED_AT = 8192
SHARE_OF_NOISE = 0.3
NUL_WEIGHS = 8  # text may hold a stray control character, and hardly ever a NUL
MAGIC = (
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\x7fELF",
    b"\x89PNG",
    b"BZh",
    b"\xfd7zXZ",
    b"\x28\xb5\x2f\xfd",
    b"\x89HDF",
    b"%PDF",
)
MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
TEXT = bytes({*range(32, 256), 7, 8, 9, 10, 12, 13, 27} - {127})


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, and the number of the first of them."""

    first_line: int
    data: bytes


def read_blocks(stream: BinaryIO, name: str) -> Iterator[Block]:
    """The log in pieces that are never much longer than `BLOCK_BYTES`. Refuses what is no text."""
    line, kept = 1, b""
    for piece in pieces(stream, name):
        data = kept + piece
        end = data.rfind(b"\n") + 1 or data.rfind(b"\r") + 1
        if end == 0 and len(data) < BLOCK_BYTES:
            kept = data
            continue
        end = end or len(data)
        yield Block(line, data[:end])
        line += data.count(b"\n", 0, end)
        kept = data[end:]
    if kept:
        yield Block(line, kept)


def pieces(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """What the stream holds, as UTF-8 where that can be told."""
    first = stream.read(BLOCK_BYTES)
    for mark, encoding in MARKS:
        if first.startswith(mark):
            yield from decoded(stream, first[len(mark) :], encoding)
            return
    first = past_nuls(stream, first, name)
    refuse_binary(first[:LOOKED_AT], name)
    while first:
        yield first
        first = stream.read(BLOCK_BYTES)


def decoded(stream: BinaryIO, first: bytes, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    while first:
        yield decoder.decode(first).encode("utf-8", "replace")
        first = stream.read(BLOCK_BYTES)


def past_nuls(stream: BinaryIO, first: bytes, name: str) -> bytes:
    """A log that was emptied while it was written begins with NULs; nothing but NULs is no log."""
    only_nuls = False
    while first.startswith(b"\x00"):
        first, only_nuls = first.lstrip(b"\x00"), True
        first = first or stream.read(BLOCK_BYTES)
    if only_nuls and not first:
        raise not_text(name)
    return first


def refuse_binary(head: bytes, name: str) -> None:
    """A log that was pasted by mistake as something else must not be searched for words."""
    controls = len(head.translate(None, TEXT))
    broken = head.decode("utf-8", "replace").count("\ufffd") if controls else 0
    noise = controls + broken + (NUL_WEIGHS - 1) * head.count(0)
    if head.startswith(MAGIC) or noise > SHARE_OF_NOISE * len(head):
        raise not_text(name)


def not_text(name: str) -> InputError:
    return InputError(f"{name} is not a text file.", "Give the log as text, e.g. python train.py 2>&1 | tee train.log")
