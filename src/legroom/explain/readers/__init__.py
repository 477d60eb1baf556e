"""One small reader for each kind of message: phrases that its lines hold, and a function from a line to what it says.

A reader yields pairs of a name and a value; `("oom", kind)` says that memory ran out, and what follows it on that line is about it.
Every regular expression is linear: no repeat inside a repeat, every repeat bounded (tests/explain/test_explain_regex.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from legroom.explain.lines import Line, Phrases
from legroom.explain.readers import (
    bfc,
    code,
    constants,
    cudnn,
    data,
    devices,
    driver,
    host,
    kernel,
    lookalikes,
    managers,
    otherwise,
    progress,
    retracing,
    tensorflow,
    torch,
    traceback,
    words,
    xla,
    xla_report,
)
from legroom.records.diagnosis import Fact

Said = Iterator[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Reader:
    """`strong` phrases make a block of the log worth reading; `weak` ones are only looked for there; `sparse` now and then."""

    read: Callable[[str], Said]
    strong: Sequence[bytes] = ()
    weak: Sequence[bytes] = ()
    sparse: Sequence[bytes] = ()


LAST = Reader(words.read, words.STRONG)
READERS = (
    Reader(lookalikes.read, lookalikes.STRONG, lookalikes.WEAK),
    Reader(otherwise.read, otherwise.STRONG),
    Reader(bfc.read, bfc.STRONG, bfc.WEAK),
    Reader(devices.read, devices.STRONG),
    Reader(managers.read, managers.STRONG),
    Reader(driver.read, driver.STRONG, driver.WEAK),
    Reader(cudnn.read, cudnn.STRONG),
    Reader(constants.read, constants.STRONG),
    Reader(torch.read, torch.STRONG, torch.WEAK),
    Reader(xla.read, xla.STRONG, xla.WEAK),
    Reader(xla_report.read, (), xla_report.WEAK),
    Reader(tensorflow.read, tensorflow.STRONG, tensorflow.WEAK),
    Reader(kernel.read, kernel.STRONG, kernel.WEAK),
    Reader(host.read, host.STRONG, host.WEAK),
    Reader(retracing.read, retracing.STRONG),
    Reader(traceback.read, (), traceback.WEAK),
    Reader(data.read, (), data.WEAK),
    Reader(code.read, (), code.WEAK),
    Reader(progress.read, (), (), progress.SPARSE),
    LAST,
)
PHRASES = Phrases(
    tuple(dict.fromkeys(phrase for reader in READERS for phrase in reader.strong)),
    tuple(dict.fromkeys(phrase for reader in READERS for phrase in reader.weak)),
    tuple(dict.fromkeys(phrase for reader in READERS for phrase in reader.sparse)),
)
UNDERSTOOD = frozenset(
    [
        "oom",
        "refused",
        "refused_on_host",
        "no_context",
        "driver_out",
        "cudnn",
        "cudnn_workspace",
        "wrong_library",
        "harmless",
        "large_allocation",
        "rematerialized",
        "regions_collected",
        "not_memory",
        "autotune",
        "growing",
        "arguments_exceed",
        "not_for_memory",
        "cgroup",
        "kernel_died",
        "retraced",
    ]
)
BY_PHRASE: dict[bytes, tuple[Reader, ...]] = {
    phrase: tuple(reader for reader in READERS if phrase in (*reader.strong, *reader.weak, *reader.sparse))
    for phrase in (*PHRASES.strong, *PHRASES.weak, *PHRASES.sparse)
}


def read_line(line: Line) -> Iterator[Fact]:
    """All facts of a line, in the readers' order; the last is asked only about what the others do not know."""
    is_understood = is_other = False
    readers = {id(reader): reader for phrase in line.phrases for reader in BY_PHRASE[phrase]}
    for reader in READERS if len(readers) > 1 else readers.values():
        if id(reader) in readers and not is_other and not (reader is LAST and is_understood):
            for name, value in reader.read(line.text):
                is_understood = is_understood or name in UNDERSTOOD
                is_other = is_other or name == "not_memory"
                yield Fact(name, value, line.number, line.text)
