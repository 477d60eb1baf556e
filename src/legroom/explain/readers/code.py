"""Large numbers in code and shapes: how many of something there are, before something is made of all their pairs."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

WEAK = (
    *(b"np.", b"numpy.", b"torch.", b"tf.", b"vmap", b"arange(", b"zeros(", b"ones(", b"rand", b"linspace(", b"shape"),
    *(b"N = ", b"n = ", b"N=", b"n=", b"num_", b"n_points", b"n_samples"),
)
COUNT = re.compile(r"(?<![\w.])(\d{4,9}|\d{1,3}(?:_\d{3}){1,2}|\d(?:\.\d)?e[4-6])(?![\w.])")
FEWEST = 10_000
NUMBERS_IN_LINE = 8


def read(text: str) -> Iterator[tuple[str, Any]]:
    for found in islice(COUNT.finditer(text), NUMBERS_IN_LINE):
        count = int(float(found[1].replace("_", "")))
        if count >= FEWEST:
            yield "count", count
