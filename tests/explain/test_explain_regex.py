"""No regular expression of the readers takes more than linear time, whatever a log holds."""

import importlib
import pkgutil
import re
import time

import pytest

import legroom.explain
from legroom.explain.text import LONGEST

SHORT, LONG = 4_000, 32_000


def patterns():
    for module in pkgutil.walk_packages(legroom.explain.__path__, "legroom.explain."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, re.Pattern):
                yield f"{module.name.rsplit('.', 1)[1]}.{name}", value
            for number, message in enumerate(value if name == "MESSAGES" else ()):
                pattern = getattr(message, "pattern", None)
                if pattern is not None:
                    yield f"{module.name.rsplit('.', 1)[1]}.{name}.{number}", pattern


PATTERNS = dict(patterns())
TEASERS = (
    *(
        "a",
        "9",
        " ",
        "/",
        "[",
        "(",
        "{{node ",
        "Size: 1",
        "1,",
        "[[Node: ",
        "a/",
        "9.",
        ": ",
        "\t",
        "x" * 20 + " ",
        "\x1b[",
        "\x1b]",
    ),
    *(
        "trying to allocate 9",
        "exit ",
        "Killed ",
        "1 Killed  ",
        'File "',
        "out of memory ",
        "memory 9",
        "layer '",
        "1 out of the last 1 calls to ",
    ),
    *(
        "Filling up shuffle buffer ",
        "-rss:9",
        "kill process 1 (",
        "Used 9G of ",
        "with shape (",
        'op_name="',
        "memory ",
        "mem",
        "I0000 00:00:",
    ),
    *(
        "\\x1b[",
        "^[[",
        "Iterator::",
        "pjit(",
        "a(",
        "| 9/9 ",
        "9/9 ",
        "epoch ",
        "Allocator (",
        "by op ",
        "Free at 0x",
        "  Size: 9GiB | Requested Size: ",
    ),
)


@pytest.mark.parametrize("name", PATTERNS)
def test_it_is_linear(name):
    """Eight times the text may take eight times as long, and a little for noise; a quadratic one takes sixty-four."""
    pattern = PATTERNS[name]
    for teaser in TEASERS:
        if seconds(pattern, teaser, LONG) < 0.02:
            continue
        long, short = (min(seconds(pattern, teaser, size) for _ in range(5)) for size in (LONG, SHORT))
        assert long < 24 * short, (name, teaser, long, short)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_line_of_the_longest_is_quick(name):
    for teaser in TEASERS:
        assert min(seconds(PATTERNS[name], teaser, LONGEST) for _ in range(3)) < 0.1, (name, teaser)


def seconds(pattern, teaser, size):
    text = (teaser * (size // len(teaser) + 1))[:size]
    started = time.thread_time()
    for _ in pattern.finditer(text):
        pass
    return time.thread_time() - started


def test_all_readers_are_among_them():
    assert len(PATTERNS) > 60
