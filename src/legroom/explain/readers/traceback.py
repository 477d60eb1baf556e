"""The way to an error: frames of the user's own code, told from those of libraries."""

import re
from collections.abc import Iterator
from typing import Any

WEAK = (b'File "', b"line ", b"ipython-input", b"<ipython", b"Traceback (most", b"Cell In[")
FRAME = re.compile(r"File \"([^\"]{1,300})\", line (\d{1,7})(?:, in ([^\s,]{1,120}))?")
CELL = re.compile(r"<?(ipython-input-\d{1,6}|Cell In ?\[\d{1,6}\])[^\n]{0,40}?(?: in |line )(<\w{1,20}>|\d{1,7})")
LIBRARY = re.compile(
    r"site-packages|dist-packages|[/\\]lib[/\\]python|[/\\]keras[/\\]|<frozen|<string>|runpy\.py|[/\\]Lib[/\\]|tensorflow[/\\]python|[/\\]jax[/\\]_src|<__array_function__"
)


def read(text: str) -> Iterator[tuple[str, Any]]:
    if "Traceback (most" in text:
        yield "traceback", None
    if frame := FRAME.search(text):
        yield "frame", frame[3] or ""
        if not LIBRARY.search(frame[1]):
            yield "place", f"{frame[1]}:{frame[2]}" + (f" in {frame[3]}" if frame[3] else "")
    elif cell := CELL.search(text):
        yield "place", f"{cell[1]}:{cell[2]}"
