"""The lines of a log that may say something about memory, found without looking at the others.

A gigabyte of output must not take minutes, so the log is searched in blocks. In the first `WHOLE_BYTES`, and in the last block, every
phrase is looked for. Between them a block without one of a few short words is passed over, and so is one without a sign of an error; both lists are made
from the readers' own phrases, so that nothing that a reader knows can be missed. The others are searched for every phrase, and only those lines are handed on. Each
phrase is heard a bounded number of times, and beyond `FIRST_BYTES` of such blocks only the last `LAST_BYTES` are searched. Beyond
`ALL_WORDS_BYTES` of log, rare words are looked for in its end alone: they are in the last lines of a run that failed.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO

from legroom.explain.blocks import Block, read_blocks
from legroom.explain.text import clean

COMMON = (b"emory", b"lloc", b"illed", b"etracing", b"DNN")
COMMON_SIGNS = (
    *(
        b"of memory",
        b"OM when",
        b"OOM",
        b"xhausted",
        b"illed",
        b"MemoryError",
        b"OF_MEM",
        b"ate memory",
        b"bad_alloc",
        b"etracing",
    ),
    *(b"DNN", b"bfc_alloc"),
)
RARE = (  # short, in many phrases, and hardly ever in what a run prints that goes well
    *(
        b"xceed",
        b"nough ",
        b"nsufficient",
        b"arger than",
        b"nable to",
        b"ailed",
        b"ailure",
        b"UT_OF_",
        b"LLOC",
        b"tatus",
        b"cud",
        b"CUDA",
    ),
    *(
        b"algorithm",
        b"f GPU",
        b"cublas",
        b"UBLAS",
        b"ut of ",
        b"WinError",
        b"xC0000",
        b"-10737",
        b"too ",
        b"from device",
        b" fit ",
    ),
    *(
        b"2GB",
        b"2 GB",
        b"2GiB",
        b"2 GiB",
        b"xhausted",
        b"XHAUSTED",
        b"ignal",
        b"kernel",
        b"_limit",
        b"Too ",
        b"f size",
        b"than ",
    ),
    *(
        b"o alloc",
        b"t alloc",
        b"llocation",
        b"emory l",
        b"oom_",
        b"oom-",
        b"buffer ",
        b"KILL",
        b"constant",
        b"xit",
    ),
)
WHOLE_BYTES = 2 * 1024 * 1024
ALL_WORDS_BYTES = 32 * 1024 * 1024
FIRST_BYTES = 24 * 1024 * 1024
LAST_BYTES = 8 * 1024 * 1024
BEFORE, AFTER = 1600, 6400
HEARD = 60_000
HEARD_IN_BLOCK = 100
HEARD_BETWEEN = 2
STARTS, ENDS = (b"\n", b"\r", b"\x08"), (b"\n", b"\r")


@dataclass(frozen=True, slots=True)
class Line:
    """A cleaned line, and which of the phrases that were searched for it holds."""

    number: int
    text: str
    phrases: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Phrases:
    """What is searched for: `strong` make a block worth searching, `weak` are then found too, `sparse` only now and then."""

    strong: tuple[bytes, ...]
    weak: tuple[bytes, ...]
    sparse: tuple[bytes, ...]

    def words(self) -> tuple[bytes, ...]:
        """A block without any of them holds no strong phrase."""
        return covering(COMMON, RARE, self.strong)

    def signs(self) -> tuple[bytes, ...]:
        """The same, of words that stand in errors alone."""
        return covering(COMMON_SIGNS, RARE, self.strong)


@cache
def covering(common: tuple[bytes, ...], short: tuple[bytes, ...], phrases: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The common words, of the short ones those that help, and the phrases that hold none of them: what a reader knows cannot be passed over."""
    chosen = list(common)
    left = [phrase for phrase in phrases if not any(word in phrase for word in common)]
    for word in (*short, *sorted(left, key=len)):
        if any(word in phrase for phrase in left):
            chosen.append(word)
            left = [phrase for phrase in left if word not in phrase]
    return tuple(chosen)


@cache
def grouped(words: tuple[bytes, ...], phrases: tuple[bytes, ...]) -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    """Each phrase under the first word that it holds."""
    first = {phrase: next(word for word in words if word in phrase) for phrase in phrases}
    return tuple((word, tuple(phrase for phrase in phrases if first[phrase] == word)) for word in words)


def has_any(data: bytes, words: Sequence[bytes]) -> bool:
    """Words of other alphabets are looked for only where there are any."""
    is_ascii = data.isascii()
    return any(word in data for word in words if not is_ascii or word.isascii())


class LineFinder:
    """Finds the lines of one log."""

    def __init__(self, phrases: Phrases) -> None:
        self._phrases = phrases
        self._words, self._signs = phrases.words(), phrases.signs()
        self._groups = grouped(self._words, phrases.strong)
        self._heard: dict[bytes, int] = {}
        self._read_bytes = 0
        self._searched_bytes = 0
        self._last: deque[Block] = deque()
        self._last_bytes = 0
        self.is_empty = True
        self.only_block = b""  # the log, where it is short

    def lines(self, stream: BinaryIO, name: str) -> Iterator[Line]:
        before: Block | None = None
        was_hot = False
        for number, block in enumerate(read_blocks(stream, name)):
            self.only_block = block.data if number == 0 else b""
            self.is_empty = self.is_empty and not block.data.strip()
            is_hot = self._is_hot(block.data)
            if before is not None and is_hot:
                yield from self._search(before, self._phrases.weak, self._phrases.sparse)
            elif before is not None and COMMON[0] in before.data:
                yield from self._search(before, (), COMMON[:1], HEARD_BETWEEN)
            before = block
            if is_hot or was_hot:
                yield from self._take(block)
                before = None
            was_hot = is_hot
        if before is not None and any(phrase in before.data for phrase in self._phrases.strong):
            self._last.append(before)
        elif before is not None:
            yield from self._search(before, (), self._phrases.sparse)  # no error; sizes that grow may be printed
        self._heard.clear()
        for block in self._last:
            yield from self._search(block, self._known_in(block.data), self._phrases.sparse)

    def _is_hot(self, data: bytes) -> bool:
        if self._read_bytes < WHOLE_BYTES:
            self._read_bytes += len(data)
            return any(phrase in data for phrase in self._phrases.strong)
        words, signs = (self._words, self._signs) if self._read_bytes < ALL_WORDS_BYTES else (COMMON, COMMON_SIGNS)
        self._read_bytes += len(data)
        return has_any(data, words) and has_any(data, signs)

    def _known_in(self, data: bytes) -> list[bytes]:
        """The phrases that the block may hold: those whose word it holds, and the weak ones."""
        return [*self._phrases.weak, *(phrase for word, group in self._groups if word in data for phrase in group)]

    def _take(self, block: Block) -> Iterator[Line]:
        """Search the block now, or keep it until it is known whether it is among the last."""
        if self._searched_bytes < FIRST_BYTES:
            self._searched_bytes += len(block.data)
            yield from self._search(block, self._known_in(block.data), self._phrases.sparse)
            return
        self._last.append(block)
        self._last_bytes += len(block.data)
        while self._last_bytes > LAST_BYTES:
            self._last_bytes -= len(self._last.popleft().data)

    def _search(
        self, block: Block, phrases: Sequence[bytes], sparse: Sequence[bytes], at_most: int = HEARD_IN_BLOCK
    ) -> Iterator[Line]:
        data = block.data
        found: dict[tuple[int, int], list[bytes]] = {}
        for phrase in phrases:
            self._find(data, phrase, HEARD, found)
        for phrase in sparse:
            self._find(data, phrase, at_most, found)
        number, counted = block.first_line, 0
        for (start, end), held in sorted(found.items()):
            number += data.count(b"\n", counted, start)
            counted = start
            yield Line(number, clean(data[start:end]), tuple(held))

    def _find(self, data: bytes, phrase: bytes, at_most: int, found: dict[tuple[int, int], list[bytes]]) -> None:
        """Note where the phrase stands. A sparse one (few at most in a block) is not counted over the whole log."""
        counts = at_most == HEARD
        left = at_most - (self._heard.get(phrase, 0) if counts else 0)
        position = data.find(phrase) if left > 0 else -1
        while position >= 0 and left > 0:
            span = span_around(data, position)
            found.setdefault(span, []).append(phrase)
            left -= 1
            if counts:
                self._heard[phrase] = self._heard.get(phrase, 0) + 1
            position = data.find(phrase, span[1])


def span_around(data: bytes, position: int) -> tuple[int, int]:
    """The piece of a line around a position: between line ends, carriage returns and the backspaces of progress bars."""
    low, high = max(0, position - BEFORE), min(len(data), position + AFTER)
    start = max([low, *(data.rfind(mark, low, position) + 1 for mark in STARTS)])
    ends = [found for mark in ENDS if (found := data.find(mark, position, high)) >= 0]
    return start, max(position + 1, min(ends, default=high))
