"""The way to an error: frames of the user's own code, told from those of libraries."""

import re
from collections.abc import Iterator
from typing import Any

WEAK = (
    b"from_pretrained(",
    b"load_weights(",
    b"load_model(",
    b"load_checkpoint(",
    *(b"load_state_dict(", b"init_params(", b".to(", b".cuda("),
    b'File "',
    b"line ",
    b"ipython-input",
    b"<ipython",
    b"Traceback (most",
    b"Cell In[",
    *(b"eval_step", b"evaluate(", b"valid_step", b"validate(", b"validation_step", b"predict(", b"predict_step"),
    *(b"test_step", b"generate("),
)
FRAME = re.compile(r"File \"([^\"]{1,300})\", line (\d{1,7})(?:, in {1,4}([^\s,]{1,120}))?")
CELL = re.compile(r"<?(ipython-input-\d{1,6}|Cell In ?\[\d{1,6}\])[^\n]{0,40}?(?: in |line )(<\w{1,20}>|\d{1,7})")
UPDATES = re.compile(
    r"(?:apply_gradients|get_updates?(?:_op)?|update_step|_(?:resource_)?apply_(?:dense|sparse)\w{0,30})$"
)
MAKES = re.compile(
    r"(?:_init_from_args|add_weight|add_variable|get_variable|_get_single_variable|_create_slots|_zeros_slot|create_slot\w{0,24}|restore_op)$"
)
LIBRARY = re.compile(
    r"site-packages|dist-packages|[/\\]lib[/\\]python|[/\\]keras[/\\]|<frozen|<string>|runpy\.py|[/\\]Lib[/\\]|tensorflow[/\\]python|[/\\]jax[/\\]_src|<__array_function__"
)


EVALUATES = re.compile(
    r"(?:eval|valid|validation|predict|test)_step\w{0,8}\(|\b(?:evaluate|validate|predict|generate)\("
)
LOADS = re.compile(
    r"\b(?:from_pretrained|load_weights|load_model|load_checkpoint|load_state_dict|init_params)\(|\bmodel\w{0,12}\.(?:to|cuda|half)\("
)


def read(text: str) -> Iterator[tuple[str, Any]]:
    if LOADS.search(text):
        yield "loads_model", None
    if EVALUATES.search(text):
        yield "evaluates", None
    if "Traceback (most" in text:
        yield "traceback", None
    if frame := FRAME.search(text):
        yield "frame", frame[3] or ""
        if UPDATES.match(frame[3] or ""):
            yield "updates", frame[3]
        elif MAKES.match(frame[3] or ""):
            yield "makes", frame[3]
        if not LIBRARY.search(frame[1]):
            yield "place", f"{frame[1]}:{frame[2]}" + (f" in {frame[3]}" if frame[3] else "")
    elif cell := CELL.search(text):
        yield "place", f"{cell[1]}:{cell[2]}"
