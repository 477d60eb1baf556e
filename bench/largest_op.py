"""The largest batch that Legroom predicts op by op against the largest that really trains under a limit on an H200.

    python bench/largest_op.py --ask           (predicts, a minute a model; no GPU; into bench/data/largest_op_said.json)
    python bench/device/largest_op.py …        (on a machine with a GPU; its lines are bench/data/h200_largest_op.jsonl)
    python bench/largest_op.py [--write]       (the table; with --write into docs/plan.md)

*true* trains 12 steps in a process of its own, and what is 1% larger (or by one) runs out of memory there. Halving ends at a power of two; Keras' own
accumulation over four batches is run for real on the same card, to 3%: the examples of one update.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from pages import put

DATA = pathlib.Path(__file__).resolve().parent / "data"
MEASURED, SAID = DATA / "h200_largest_op.jsonl", DATA / "largest_op_said.json"


def cases() -> dict[tuple[str, str, int], dict[str, Any]]:
    """What was found on the card, the latest for each case."""
    rows = map(json.loads, MEASURED.read_text().splitlines())
    return {(row["model"], row["policy"], row["limit"]): row for row in rows if "true" in row}


def predict(name: str, policy: str, limit: int, start: int) -> None:
    import zoo

    import legroom

    model, x, y = zoo.setup(name, start, policy)
    model.compile(model.optimizer, model.loss, jit_compile=False)
    found = legroom.estimate(model, (x, y), gpu="h200", budget=limit * 2**20, engine="op", max_batch=True)
    print(f"ROW {found.max_batch}", flush=True)


def ask(name: str, policy: str, limit: int, true: int) -> int:
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, __file__, "--predict", name, policy, str(limit), str(max(1, true // 2))]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if not rows:
        raise RuntimeError(f"{name}: {done.stderr[-1500:]}")
    return int(rows[0])


def table() -> str:
    said = {(row["model"], row["policy"], row["limit"]): row["said"] for row in json.loads(SAID.read_text())}
    lines = [
        "| model | limit GiB | true | predicted | of the true | halving | Keras accumulates 4 |",
        "|" + "---|" * 7,
    ]
    shares = []
    for key, row in cases().items():
        if key not in said:
            continue
        name, policy, limit = key
        true, found = row["true"], said[key]
        shares.append(found / true)
        halved = 2 ** int(math.log2(max(1, true)))
        label = name if policy == "float32" else f"{name}, {policy}"
        cells = [label, limit // 1024, f"{true:,}", f"{found:,}", f"{shares[-1]:.0%}", f"{halved:,}"]
        lines.append("| " + " | ".join(map(str, [*cells, f"{row['keras']:,}" if "keras" in row else "not run"])) + " |")
    sure, near = sum(share <= 1 for share in shares), sum(share >= 0.97 for share in shares)
    return (
        f"Not too large: {sure} of {len(shares)}. At least 97% of the true one: {near}.\n\n" + "\n".join(lines) + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--predict", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.predict:
        name, policy, limit, start = options.predict
        predict(name, policy, int(limit), int(start))
        return
    if options.ask:
        said = []
        for (name, policy, limit), row in cases().items():
            said.append(
                {"model": name, "policy": policy, "limit": limit, "said": ask(name, policy, limit, row["true"])}
            )
            print(said[-1], file=sys.stderr, flush=True)
            SAID.write_text(json.dumps(said, indent=1) + "\n")
        return
    found = table()
    print(found)
    if options.write:
        put("plan.md", "largest op by op", found)


if __name__ == "__main__":
    main()
