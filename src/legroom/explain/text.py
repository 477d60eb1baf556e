"""A line of a log made harmless: no colours, no control characters, nothing that a terminal would obey, and never too long."""

import re
from itertools import pairwise

LONGEST = 2400
SHOWN = 300
NARROWEST, WIDEST, NEARLY = 40, 240, 0.85  # of a terminal, in characters
MAIL = 100  # as wide as mails are
ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]?|[\]PX^_][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)?|[ -/]{0,3}[0-~]?)|\x9b[0-?]{0,32}[@-~]?"
)
PRINTED_ESCAPE = re.compile(r"\\(?:x1[bB]|033|u001[bB])\[[0-9;]{0,16}m|\^\[\[[0-9;]{0,16}m|␛\[[0-9;]{0,16}m")
CONTINUES = re.compile(  # in the midst of a sentence, or with one that PyTorch, XLA and TensorFlow write behind another
    r" {0,3}(?:[a-z(]|[\d.]{1,12} [KMG]i?B |Tried to |GPU \d|Including non-|Of the alloc|Process \d|There are |Used \d|That was |Attempting to |/job:|GPU_\d)"
)
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def clean(raw: bytes) -> str:
    """The text of a piece of a log. What is not UTF-8 becomes a replacement sign."""
    return clean_text(raw[: 4 * LONGEST].decode("utf-8", "replace"))


def clean_text(text: str) -> str:
    text = text[: 4 * LONGEST]
    if "\x1b" in text or "\x9b" in text:
        text = ESCAPE.sub("", text)
    if "[" in text and ("\\" in text or "^" in text or "␛" in text):
        text = PRINTED_ESCAPE.sub("", text)
    return CONTROL.sub("", text)[:LONGEST]


def unwrapped(log: bytes) -> list[bytes]:
    """A short log whose long lines a terminal or a mail may have broken, put together: at any letter, between words, or where a word did not fit."""
    lines = [line.rstrip(b"\r") for line in log.split(b"\n")]
    widest = max(map(len, lines))
    is_full = [len(line) >= NEARLY * widest for line in lines]
    is_broken = [full and bool(after) for full, after in zip(is_full, lines[1:], strict=False)]
    found = []
    if NARROWEST <= widest <= WIDEST and any(is_broken):
        found = [joined(lines, is_broken, glue) for glue in (b"", b" ")]
    return found + reflowed(lines)


def reflowed(lines: list[bytes]) -> list[bytes]:
    """Lines that were filled word by word, as mail programs do: a line goes on where the next one's first word would have been too long for it."""
    bare = [line[1:].removeprefix(b" ") if line.startswith(b">") else line for line in lines]
    width = max((len(line) for line in bare if b" " in line.strip()), default=0)
    if not NARROWEST <= width <= MAIL:
        return []
    is_broken = [
        bool(line and after.split())
        and len(line) + len(after.split()[0]) >= width
        and not after.startswith((b"    ", b"\t"))
        for line, after in pairwise(bare)
    ]
    return [joined(bare, is_broken, b" ")] if any(is_broken) else []


def continued(log: bytes) -> list[bytes]:
    """A short log with an error whose sentences somebody has put into lines of their own, put together."""
    lines = [line.rstrip(b"\r") for line in log.split(b"\n")]
    is_broken = [bool(line.strip()) and goes_on(after) for line, after in pairwise(lines)]
    return [joined(lines, is_broken, b" ")] if any(is_broken) else []


def goes_on(line: bytes) -> bool:
    return CONTINUES.match(line[:40].decode("latin-1")) is not None


def joined(lines: list[bytes], is_broken: list[bool], glue: bytes) -> bytes:
    """What follows keeps its line's number."""
    whole, ends = [lines[0]], b""
    for line, continues in zip(lines[1:], is_broken, strict=True):
        if continues:
            whole[-1] += glue + line
            ends += b"\n"
        else:
            whole.append(ends + line)
            ends = b""
    return b"\n".join(whole)


def shown(text: str) -> str:
    """The line as evidence: on one line, and short."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"
