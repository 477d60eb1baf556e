"""How far training had come, and sizes that a script prints as it goes: what grows shows in them."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from legroom.explain.readers.data import is_data_bar
from legroom.explain.sizes import size_of

SPARSE = (
    b"step",
    *(b"atch_size", b"atch size", b"atchsize", b"atchSize"),
    *(b"Epoch ", b"Epoch:", b"Epoch...", b"pochs", b"Step"),
    b"epoch ",
    b" - ETA",
    "━".encode(),
    b"it/s]",
    b"[====",
    b"emory",
    b"RSS",
    b"rss",
    b"mem",
    b"RAM",
    b"'current'",
    b"s/step",
)
EPOCH = re.compile(r"\b[Ee]poch(?::|\.{3}| \.{3})? [\[(]?(\d{1,7})(?:/(\d{1,7}))?")
STEP = re.compile(r"(?:^|[\s|])(\d{1,8})/(\d{1,8}|Unknown) (?:\[|━|\S{0,40}━)")
COUNTED = re.compile(r"\b[Ss]tep(?:[ :=#]{1,3}|\.{3} \()(\d{1,9})\b")
EPOCHS = re.compile(r"(?i)\bepochs\b|\bepoch\b[ .:]{0,5}[\[(]\d{1,7}/(\d{1,7})[\])]")  # the title of a bar over them
TQDM = re.compile(r"\| (\d{1,9})/(\d{1,9}) \[")
COUNTS = re.compile(  # numbers that are no sizes, and which of several devices is meant
    r"(?i)\b(?:epoch|step|iter(?:ation)?|it|batch|trial|fold|run|round|gpu|cuda|device|rank|worker|node|pid|process|cpu)s?[ :=#]{0,2}\d{1,9}(?:/\d{1,9})?\b(?![.\d]|\s?[kmgt]i?b\b|%)"
)
WHICH = re.compile(r"(?i)\b(?:gpu|cuda|device|rank|worker|node)[ :=#]{0,2}\d{1,3}\b(?!\.\d|\s?[kmgt]i?b\b|%)")
PRINTED = re.compile(
    r"(?i)([a-z][^\d\n]{0,36}?)(?<![\w.])(\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,6})?|\d{1,15}(?:\.\d{1,6})?) ?(%|bytes\b|[kmgt]i?b\b|[kmgt]\b|b\b)?(?!\w|/s|\.\d| ?[kmgt]i?b/s)"
)
OF_MEMORY = re.compile(r"(?i)(?<![a-z])(?:memory|(?:sv)?mem|maxrss|rss|v?ram)(?![a-z])")
IN_USE = re.compile(r"(?i)(?<![a-z])(?:current|in.?use|allocated|used|usage)(?![a-z])")
WHOLE = re.compile(r"(?i)(?<![a-z])(?:total|limit|capacity)(?![a-z])")
LEFT = re.compile(r"(?i)(?<![a-z])(?:free|available|avail|remaining)(?![a-z])")
NO_SIZE = re.compile(
    r"(?i)(?<![a-z])(?:max|peak|maximum|reserved|cached|lr|learning|loss|acc|accuracy|rate|time|speed|params?|disk|swap|tried|trying|needs?"
    r"|requested|growth|fraction|epoch|step|batch|took|eta)(?![a-z])|of memory|exceed|fail"
)
BATCH = re.compile(r"(?i)batch[_ -]?size['\"]?\s{0,8}[:=]?\s{0,8}(\d{1,7})\b")
UNITS = {"b": "B", "bytes": "B"}
FRACTION = "M"  # a number without a unit is compared with its like alone; so that 0.18 is not nothing
NUMBERS_IN_LINE = 8


def read(text: str) -> Iterator[tuple[str, Any]]:
    if "allocator" in text or "MB memory" in text:
        return
    if (ended := epochs_ended(text)) is not None:
        yield "epochs_ended", ended
        return
    if epoch := EPOCH.search(text):
        yield "epoch", int(epoch[1])
    for step in (STEP.search(text), TQDM.search(text), COUNTED.search(text)):
        if step:
            ended = step.re is not COUNTED and step[1] == step[2]  # what comes next is validation, or another epoch
            if not is_data_bar(text):
                yield "step", 0 if ended else int(step[1])
            break
    if batch := BATCH.search(text):
        yield "batch_size", int(batch[1])
    if OF_MEMORY.search(text) or "'current'" in text:  # as TensorFlow's get_memory_info has it
        yield from sizes_printed(text)


def epochs_ended(text: str) -> int | None:
    """How many epochs a bar over all of them has counted: it moves when one is over, with its evaluation."""
    bar = TQDM.search(text)
    title = EPOCHS.search(text, 0, bar.start()) if bar else None
    return int(bar[1]) if bar and title and title[1] in (None, bar[2]) else None


def sizes_printed(text: str) -> Iterator[tuple[str, Any]]:
    """Each size that a line prints of its memory: what it is called, how much, and as it was printed."""
    which = " ".join(WHICH.findall(text)[:2])
    for printed in islice(PRINTED.finditer(COUNTS.sub("", text)), NUMBERS_IN_LINE):
        label = printed[1]
        is_other = NO_SIZE.search(label) or (WHOLE.search(label) and not IN_USE.search(label))
        if is_other or not (LEFT.search(label) or IN_USE.search(label) or OF_MEMORY.search(label)):
            continue
        unit = (printed[3] or "").lower()
        said = f"{printed[2]} {printed[3] or ''}".strip()
        size = size_of(
            printed[2].replace(",", ""), UNITS.get(unit, unit[:1].upper()) if unit and unit != "%" else FRACTION
        )
        yield "printed", (f"{which} {label.strip()}", size, said)
