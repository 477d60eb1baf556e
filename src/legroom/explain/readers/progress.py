"""How far training had come, and sizes that a script prints as it goes: what grows shows in them."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.sizes import size_of

SPARSE = (
    b"step",
    *(b"atch_size", b"atch size", b"atchsize", b"atchSize"),
    b"Epoch ",
    b"epoch ",
    b" - ETA",
    "━".encode(),
    b"it/s]",
    b"[====",
    b"emory",
    b"RSS",
    b"rss",
    b"mem",
    b"'current'",
    b"s/step",
)
EPOCH = re.compile(r"\b[Ee]poch:? \[?(\d{1,7})(?:/(\d{1,7}))?")
STEP = re.compile(r"(?:^|[\s|])(\d{1,8})/(\d{1,8}|Unknown) (?:\[|━|\S{0,40}━)")
COUNTED = re.compile(r"\b[Ss]tep[ :=#]{1,3}(\d{1,9})\b")
TQDM = re.compile(r"\| (\d{1,9})/(\d{1,9}) \[")
PRINTED = re.compile(
    r"(?i)\b(?:memory|mem|rss|maxrss|current|ram|vram|in.?use|allocated)\b['\"]?[^\d\n]{0,24}?(\d{1,15}(?:\.\d{1,6})?) ?(bytes|[kmgt]i?b|[kmgt]b?|b)?\b"
)
BATCH = re.compile(r"(?i)batch[_ -]?size['\"]?\s{0,8}[:=]?\s{0,8}(\d{1,7})\b")
DIGITS = re.compile(r"\d{1,20}")
UNITS = {"b": "B", "bytes": "B"}


def read(text: str) -> Iterator[tuple[str, Any]]:
    if "allocator" in text or "MB memory" in text:
        return
    if epoch := EPOCH.search(text):
        yield "epoch", int(epoch[1])
    for step in (STEP.search(text), TQDM.search(text), COUNTED.search(text)):
        if step:
            ended = step.re is not COUNTED and step[1] == step[2]  # what comes next is validation, or another epoch
            yield "step", 0 if ended else int(step[1])
            break
    if batch := BATCH.search(text):
        yield "batch_size", int(batch[1])
    if printed := PRINTED.search(text):
        unit = (printed[2] or "").lower()
        size = size_of(printed[1], UNITS.get(unit, unit[:1].upper() or None))
        yield "printed", (DIGITS.sub("#", printed[0])[:60], size)
