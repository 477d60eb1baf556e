"""The tables behind an XLA error: BufferAssignment's statistics and peak buffers, a TPU's program and arguments."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.sizes import SIZE, size_of

WEAK = (
    *(b"parameter allocation:", b"constant allocation:", b"maybe_live_out allocation:", b"temp allocation:"),
    *(b"total allocation:", b"total fragmentation:", b"op_name="),
    *(b"    program ", b"    arguments ", b"    reserved ", b"HLO temp", b"Total hbm usage", b"hbm requirement"),
    b"captured during lowering",
)
STAT = re.compile(
    rf"(parameter|constant|maybe_live_out|preallocated temp|total) (?:allocation|fragmentation): {{1,20}}{SIZE}"
)
FRAGMENTED = "fragmentation:"
TPU = re.compile(rf"^ {{2,20}}(reserved|program|arguments|HLO temp) {{1,40}}{SIZE}")
TPU_IN_LINE = re.compile(rf" (reserved|program|arguments) {{1,40}}{SIZE}")
OP_NAME = re.compile(r"op_name=\\?\"([^\"\\]{1,600})")


def read(text: str) -> Iterator[tuple[str, Any]]:
    if stat := STAT.search(text):
        if FRAGMENTED not in stat[0]:
            yield "xla_allocation", (stat[1], size_of(stat[2], stat[3]))
    elif tpu := TPU.match(text):
        yield "xla_allocation", (tpu[1], size_of(tpu[2], tpu[3]))
    elif "Total hbm usage" in text:
        for part in TPU_IN_LINE.finditer(text, text.find("Total hbm usage")):
            yield "xla_allocation", (part[1], size_of(part[2], part[3]))
    elif op_name := OP_NAME.search(text):
        yield "buffer_op", op_name[1]
