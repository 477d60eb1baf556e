"""Graphs that hold data as constants: a protobuf cannot be larger than 2 GB."""

import re
from collections.abc import Iterator
from typing import Any

SIZES = ("2GB", "2 GB", "2GiB", "2 GiB")
STRONG = (
    *(
        f"{before}{size}".encode()
        for before in ("than ", "over ", "of ", "ceeds ", "ceed ", "ceeded ", ">", "> ")
        for size in SIZES
    ),
    *(f"{size} limit".encode() for size in SIZES),
    b"tensorflow.GraphDef",
    b"captured during lowering",
    b"larger than the limit (",
    b"rejected because it was too big",
)
TOO_LARGE = re.compile(
    r"(?:than|over|of|exceed\w{0,3}|>) {0,2}(?:the )?2 ?Gi?B\b[^:\d]{0,20}:? ?(\d{9,20})?|\b2 ?Gi?B limit[^:\d]{0,20}:? ?(\d{9,20})?"
)
OF_A_GRAPH = re.compile(r"(?i)proto|graph|serializ|constant|onnx|message|executable|hlo")


SERIALIZED = re.compile(r"serialized size \((\d{1,20}) ?bytes\) would be larger than the limit \((\d{1,20}) ?bytes\)")


def read(text: str) -> Iterator[tuple[str, Any]]:
    if (too_large := TOO_LARGE.search(text)) and OF_A_GRAPH.search(text):
        yield "oom", "constant"
        yield "raised", None
        if size := too_large[1] or too_large[2]:
            yield "failed_bytes", int(size)
    elif serialized := SERIALIZED.search(text):
        yield "oom", "constant"
        yield "raised", None
        yield "failed_bytes", int(serialized[1])
        yield "limit_bytes", int(serialized[2])
    elif (
        "tensorflow.GraphDef" in text and ("Error parsing" in text or "exceeded maximum" in text)
    ) or "message was rejected because it was too big" in text:
        yield "oom", "constant"
        yield "raised", None
    elif "captured during lowering" in text:
        yield "captured_constants", None
