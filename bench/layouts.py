"""Convolutions in other layouts than an H200 has by itself: the table "Other cards" of docs/accuracy.md.

    KERAS_BACKEND=jax python bench/layouts.py

The rows of `data/h200_layouts.jsonl` were measured with `xla_gpu_force_conv_nchw`, some with TF32 off as well; the same programs are
compiled here with the same flag, with and without workspaces.
"""

import json
import pathlib
import tempfile
from dataclasses import replace

import zoo

from legroom.capture.factory import batch_tree
from legroom.capture.keras_fit import capture_model
from legroom.engines.xla.client import OPTIONS, Oracle
from legroom.engines.xla.convolutions import read_questions, write_results
from legroom.engines.xla.lower import lower
from legroom.engines.xla.releases import release_for
from legroom.engines.xla.schedule import load_dump, read_program
from legroom.gpus import find

CARD = find("h200")
FORCED = (*OPTIONS, ("xla_gpu_force_conv_nchw", True))

print("| TF32 | model | batch | real MiB | said MiB | error | without the rule |\n|---|---|---|---|---|---|---|")
for line in (pathlib.Path(__file__).parent / "data" / "h200_layouts.jsonl").read_text().splitlines():
    row = json.loads(line)
    model, x, y = zoo.setup(row["model"], row["batch"], row["policy"])
    captured = capture_model(model, batch_tree((x, y)))
    program = lower(captured, CARD.compute_capability)
    card = CARD if row["tf32"] else replace(CARD, compute_capability=(7, 5))
    release = release_for(captured.step.framework, captured.step.framework_version)
    with Oracle(release) as oracle, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "program").write_bytes(program.program)
        questions = read_questions(oracle.run(folder, "without", program.format, CARD, FORCED))
        results = folder / "results.pbtxt"
        results.write_text(write_results(questions, card) or "version: 3")
        oracle.run(
            folder, "with", program.format, CARD, (*FORCED, ("xla_gpu_load_autotune_results_from", str(results)))
        )
        without, said = (read_program(load_dump(folder / way), program.step).total_bytes for way in ("without", "with"))
    real = row["compiled_total_bytes"]
    cells = ["yes" if row["tf32"] else "no", row["model"], row["batch"], f"{real / 2**20:,.0f}", f"{said / 2**20:,.0f}"]
    cells += [f"{100 * (said / real - 1):+.1f}%", f"{100 * (without / real - 1):+.1f}%"]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
