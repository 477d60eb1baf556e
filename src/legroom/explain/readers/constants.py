"""Graphs that hold data as constants: a protobuf cannot be larger than 2 GB."""

import re
from collections.abc import Iterator
from typing import Any

STRONG = (
    b"tensorflow.GraphDef",
    b"larger than 2GB",
    b"protobuf size of 2GB",
    b"larger than 2 GB",
    b"captured during lowering",
    b"limit of 2GB",
    b"exceeds 2GB",
    b"larger than the limit (",
)
TOO_LARGE = re.compile(
    r"(?:protobuf size of 2 ?GB|larger than 2 ?GB|limit of 2 ?GB|exceeds 2 ?GB)[^:\d]{0,20}:? ?(\d{9,20})?"
)


SERIALIZED = re.compile(r"serialized size \((\d{1,20}) ?bytes\) would be larger than the limit \((\d{1,20}) ?bytes\)")


def read(text: str) -> Iterator[tuple[str, Any]]:
    if too_large := TOO_LARGE.search(text):
        yield "oom", "constant"
        yield "raised", None
        if too_large[1]:
            yield "failed_bytes", int(too_large[1])
    elif serialized := SERIALIZED.search(text):
        yield "oom", "constant"
        yield "raised", None
        yield "failed_bytes", int(serialized[1])
        yield "limit_bytes", int(serialized[2])
    elif "tensorflow.GraphDef" in text and ("Error parsing" in text or "exceeded maximum" in text):
        yield "oom", "constant"
        yield "raised", None
    elif "captured during lowering" in text:
        yield "captured_constants", None
