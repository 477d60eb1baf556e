"""What steps are said to take from CUDA's own pool (TF_GPU_ALLOCATOR=cuda_malloc_async) against a real H200's (bench/data/h200_cuda_pool.jsonl).

    python bench/cuda_pool.py [--write]

The lines were made by bench/device/cuda_pool.py: the largest of what was used and reserved in 20 steps of `fit`, the first among them, in which cuDNN tries algorithms. With --write the table goes to docs/accuracy-plan.md.
"""

import argparse
import json
import os
import pathlib
import sys
from typing import Any

os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"  # which Legroom reads as TensorFlow does
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from pages import put

DATA = pathlib.Path(__file__).resolve().parent / "data" / "h200_cuda_pool.jsonl"
MIB = 2**20


def predict(row: dict[str, Any]) -> Any:
    import zoo

    import legroom

    model, x, y = zoo.setup(row["model"], row["batch"], "float32")
    model.compile(model.optimizer, model.loss, jit_compile=False)
    return legroom.estimate(model, (x, y), gpu="h200", engine="op")


def table() -> str:
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    own = {(row["model"], row["batch"]): row for row in rows if row["pool"] == "bfc" and row["fits"]}
    lines = [
        "| model | batch | left of the card MiB | said | at most | used | reserved | TensorFlow's pool, used | trains |"
    ]
    lines.append("|" + "---|" * 9)
    for row in rows:
        if row["pool"] == "bfc":
            continue
        said, before = predict(row), own.get((row["model"], row["batch"]))
        sizes = [said.peak_bytes, said.high_bytes, row["used"], row["reserved"], before["peak"] if before else None]
        cells = [row["model"], f"{row['batch']:,}", f"{row['left']:,}" if row.get("left") else "all"]
        cells += ["" if size is None else f"{size / MIB:,.0f}" for size in sizes]
        lines.append("| " + " | ".join([*cells, "yes" if row["fits"] else "**no**"]) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = table()
    print(found)
    if options.write:
        put("accuracy-plan.md", "cuda pool", found)


if __name__ == "__main__":
    main()
