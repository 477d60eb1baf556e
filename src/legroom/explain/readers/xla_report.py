"""The tables behind an XLA error: BufferAssignment's statistics and peak buffers, a TPU's program and arguments."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.sizes import SIZE, size_of

WEAK = (
    *(b"parameter allocation:", b"constant allocation:", b"maybe_live_out allocation:", b"temp allocation:"),
    *(b"total allocation:", b"total fragmentation:", b"op_name="),
    *(b"    program ", b"    arguments ", b"    reserved ", b"HLO temp", b"Total hbm usage", b"hbm requirement"),
    *(b"HBM capacity ", b"Currently allocated:", b"Program requirement:", b"Max free chunk"),
    b"captured during lowering",
)
STAT = re.compile(
    rf"(parameter|constant|maybe_live_out|preallocated temp|total) (?:allocation|fragmentation): {{1,20}}{SIZE}"
)
FRAGMENTED = "fragmentation:"
TPU = re.compile(rf"^ {{2,20}}(reserved|program|arguments|HLO temp) {{1,40}}{SIZE}")
TPU_IN_LINE = re.compile(rf" (reserved|program|arguments) {{1,40}}{SIZE}")
ROWS = {  # of the account that a TPU's runtime gives, as each of them begins
    "HBM capacity": "limit_bytes",
    "Currently allocated:": "in_use_bytes",
    "Program requirement:": "failed_bytes",
    "Max free chunk": "largest_free",
}
ROW_SIZE = re.compile(rf"^[A-Za-z ]{{8,24}}:? {{0,40}}{SIZE}(?: \( {{0,20}}([\d,]{{1,24}}) bytes\))?")
OP_NAME = re.compile(r"op_name=\\?\"([^\"\\]{1,600})")


def read(text: str) -> Iterator[tuple[str, Any]]:
    row = next((name for words, name in ROWS.items() if text.lstrip().startswith(words)), None)
    if row is not None:
        if size := ROW_SIZE.match(text.lstrip()):
            yield row, int(size[3].replace(",", "")) if size[3] else size_of(size[1], size[2])
    elif stat := STAT.search(text):
        if FRAGMENTED not in stat[0]:
            yield "xla_allocation", (stat[1], size_of(stat[2], stat[3]))
    elif tpu := TPU.match(text):
        yield "xla_allocation", (tpu[1], size_of(tpu[2], tpu[3]))
    elif "Total hbm usage" in text:
        for part in TPU_IN_LINE.finditer(text, text.find("Total hbm usage")):
            yield "xla_allocation", (part[1], size_of(part[2], part[3]))
    elif op_name := OP_NAME.search(text):
        yield "buffer_op", op_name[1]
