"""The workspaces that a real card's compiler gave its convolutions, from the dumps of `collect.py`, each once.

    python bench/device/workspaces.py DUMP.hlo.txt.gz … > bench/data/h200_workspaces.jsonl

`legroom.engines.xla.convolutions` is held against them in tests/engines/test_convolutions.py.
"""

import gzip
import json
import pathlib
import re
import sys

SHAPE = re.compile(r"^\s*(?:ROOT )?%(\S+) = (\([^=]*?\)|\S+) ", re.MULTILINE)
CALL = re.compile(r'= \((\S+), u8\[(\d+)\]\{0\}\) custom-call\((.*?)\), (.*?custom_call_target="__cudnn\$conv\w+")')

seen = set()
for name in sys.argv[1:]:
    text = gzip.decompress(pathlib.Path(name).read_bytes()).decode()
    shapes = {match[1]: match[2] for match in SHAPE.finditer(text)}
    for match in CALL.finditer(text):
        operands = [part.strip().lstrip("%") for part in re.sub(r"/\*.*?\*/", "", match[3]).split(",")]
        hlo = f"({match[1]}, u8[0]{{0}}) custom-call({', '.join(shapes.get(o, '?') for o in operands)}), {match[4]}"
        tf32 = "plain" not in pathlib.Path(name).parts
        if (hlo, tf32) not in seen:
            seen.add((hlo, tf32))
            print(json.dumps({"hlo": hlo, "tf32": tf32, "workspace_bytes": int(match[2])}))
