"""Messages as a table: the words by which one is known, what it says, and where its numbers stand."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from legroom.explain.sizes import size_of

UNIT = "_unit"


@dataclass(frozen=True, slots=True)
class Message:
    """`phrase` finds its lines. Every named group of `pattern` is a size, and becomes a fact of that name."""

    phrase: str
    says: tuple[tuple[str, Any], ...]
    pattern: re.Pattern[str] | None = None


def message(phrase: str, *says: tuple[str, Any], pattern: str | None = None) -> Message:
    return Message(phrase, says, None if pattern is None else re.compile(pattern))


def sized(name: str) -> str:
    """A size that becomes the fact `name`: `1,600,000,000 bytes`, `12.5 GB`, `2048 megabytes`, `67108864kb`."""
    number = r"\d{1,3}(?:,\d{3}){1,6}|\d{1,20}(?:\.\d{0,9})?"
    unit = r"[KMGTPkmgt]i?[Bb]|kilobytes|megabytes|gigabytes|[KMGTP]|B\b|[bB]ytes"
    return rf"(?P<{name}>{number})\s?(?P<{name}{UNIT}>{unit})?"


def phrases(messages: Sequence[Message]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(each.phrase.encode() for each in messages))


def read_messages(messages: Sequence[Message], text: str) -> Iterator[tuple[str, Any]]:
    """What the first message that the line is says."""
    for each in messages:
        if each.phrase in text:
            found = each.pattern.search(text) if each.pattern is not None else None
            if each.pattern is None or found is not None:
                yield from each.says
                yield from sizes(found)
                return


def sizes(found: re.Match[str] | None) -> Iterator[tuple[str, int]]:
    """In `3.00/24.00 GiB` both are GiB."""
    if found is None:
        return
    groups = found.groupdict()
    names = [name for name, number in groups.items() if number is not None and not name.endswith(UNIT)]
    for name, after in zip(names, [*names[1:], None], strict=False):
        unit = groups[name + UNIT]
        if unit is None and after is not None and "/" in found.string[found.end(name) : found.start(after)]:
            unit = groups[after + UNIT]
        yield name, size_of(groups[name].replace(",", ""), unit)
