"""The way through this room: a log, a text or an exception in, a Diagnosis out."""

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from legroom.errors import InputError
from legroom.explain.advice import advise
from legroom.explain.causes import judge
from legroom.explain.errors import notes_of, text_of
from legroom.explain.incidents import ROUNDING
from legroom.explain.lines import LineFinder
from legroom.explain.numbers import numbers_beside, numbers_of, warned_bytes
from legroom.explain.readers import PHRASES, read_line
from legroom.explain.story import Story
from legroom.explain.text import clean_text, continued, unwrapped
from legroom.records.diagnosis import Diagnosis, Fact

TOLD = (
    *("failed_bytes", "device", "allocator", "dtype", "pool"),
    *("limit_bytes", "in_use_bytes", "free_bytes", "largest_free_bytes"),
)


def explain(error_or_text: BaseException | str | bytes) -> Diagnosis:
    """Why memory ran out, from an exception or from the text of a log."""
    if isinstance(error_or_text, BaseException):
        return explain_error(error_or_text)
    data = error_or_text.encode("utf-8", "replace") if isinstance(error_or_text, str) else bytes(error_or_text)
    return explain_stream(io.BytesIO(data), "The text")


def explain_stream(stream: BinaryIO, name: str) -> Diagnosis:
    """The same for a log that may be larger than memory."""
    finder = LineFinder(PHRASES)
    found = told(finder, stream, name)
    if finder.is_empty:
        raise InputError(f"{name} is empty.", "Give the log of a run: python train.py 2>&1 | tee train.log")
    block = finder.only_block
    for log in unwrapped(block) + (continued(block) if found.incidents else []):
        again = told(LineFinder(PHRASES), io.BytesIO(log), name)
        found = again if says_more(again, found) else found
    return found


def told(finder: LineFinder, stream: BinaryIO, name: str) -> Diagnosis:
    story = Story()
    story.read(facts_of(finder, stream, name))
    return diagnose(story)


def says_more(again: Diagnosis, found: Diagnosis) -> bool:
    """Whether a second reading of the same log knows all that the first knows, and something besides."""
    if found.cause == "unknown" and not found.incidents:
        return not found.why and (again.cause != "unknown" or bool(again.incidents))
    names = (*TOLD, "op", "tensor_shape")
    before = {name: getattr(found, name) for name in names if getattr(found, name) is not None}
    after = {name: getattr(again, name) for name in names if getattr(again, name) is not None}
    return len(after) > len(before) and all(agree(after.get(name), value) for name, value in before.items())


def agree(after: object, before: object) -> bool:
    """Whether a fact is the same; a size may have been rounded."""
    if isinstance(after, int) and isinstance(before, int):
        return abs(after - before) <= ROUNDING * before
    return after == before


def explain_error(error: BaseException) -> Diagnosis:
    """From the exception itself: its message, those behind it, and its traceback."""
    found = explain(text_of(error))
    place, layer = notes_of(error)
    return replace(found, place=place or found.place, layer=found.layer or layer)


def facts_of(finder: LineFinder, stream: BinaryIO, name: str) -> Iterator[Fact]:
    for line in finder.lines(stream, name):
        yield from read_line(line)


def diagnose(story: Story) -> Diagnosis:
    """The incident to explain, its numbers, its causes, and what to do."""
    incident = story.main()
    numbers = numbers_beside(story) if incident is None else numbers_of(incident, story)
    causes = judge(story, incident, numbers)
    found = Diagnosis(causes[0].cause, causes, incidents=len(story.incidents))
    if found.cause != "unknown" or incident is not None or story.has("left_at_failure"):
        found = replace(
            found,
            **{name: getattr(numbers, name) for name in TOLD},
            tensor_shape=numbers.shape,
            op=said(numbers.op),
            layer=said(numbers.layer),
            place=None if incident is None else said(incident.place),
        )
    if found.cause == "not_an_error":
        found = replace(found, failed_bytes=warned_bytes(story))
    return replace(found, advice=advise(found, story))


def said(text: str | None) -> str | None:
    return None if text is None else clean_text(text)
