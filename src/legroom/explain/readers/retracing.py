"""Functions that are traced again and again: each trace keeps its own graph, and XLA its own program."""

import re
from collections.abc import Iterator
from typing import Any

STRONG = (
    b"triggered tf.function retracing",
    b"function retracing",
    b"Finished tracing + transforming",
    b"jax_explain_cache_misses",
    b"TRACING CACHE MISS",
    *(b"recompile_limit", b"cache_size_limit"),
)
TRACED = re.compile(r"(\d{1,9}) out of the last (\d{1,9}) calls to (.{1,200}?) triggered")

LIMIT = re.compile(r"hit config\.\w{0,20}(?:recompile|cache_size)_limit")  # of torch.compile


def read(text: str) -> Iterator[tuple[str, Any]]:
    if traced := TRACED.search(text):
        yield "retraced", traced[3]
    elif "TRACING CACHE MISS" in text or LIMIT.search(text):
        yield "retraced", "a compiled function"
