"""The largest batch that Legroom predicts against the largest that really trains, compiled, under a limit on an H200.

    python bench/largest_batch.py --ask > bench/data/largest_batches.json     (predicts; no GPU)
    python bench/device/largest_batch.py …                                    (on a machine with a GPU)
    python bench/largest_batch.py --write                                     (the table, into docs/plan.md)

For each model the predicted batch must fit, and one 3% larger (or by one) must not; beside them the power of two that halving
would end at. Nothing that runs out of memory is tried by Legroom itself.
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

HERE = pathlib.Path(__file__).resolve().parent
PREDICTED = HERE / "data" / "largest_batches.json"
MEASURED = HERE / "data" / "h200_largest_batches.jsonl"
CASES = (
    # model, batch to begin with, limit in MiB
    *(("gpt", 8, 24576), ("bert", 64, 24576), ("translator", 32, 24576), ("long_attention", 16, 24576), ("tabular", 4096, 24576)),
    *(("patches", 128, 24576), ("linear_attention", 32, 24576), ("wide_dense", 512, 24576), ("recommender", 1024, 24576)),
    ("mlp", 4096, 24576),
    *(("resnet50", 32, 8192), ("unet", 16, 8192), ("vit", 32, 8192), ("gpt", 8, 8192), ("bert", 64, 8192)),
    *(("mobilenetv2", 64, 8192), ("vgg16", 32, 8192), ("autoencoder", 64, 8192), ("tutorial_cnn", 64, 8192)),
    ("super_resolution", 32, 8192),
)  # fmt: skip


def predict(name: str, batch: int, limit: int) -> None:
    import zoo

    import legroom

    model, x, y = zoo.setup(name, batch, "float32")
    model.compile(model.optimizer, model.loss, jit_compile=True)
    found = legroom.estimate(model, (x, y), gpu="h200", budget=limit * 2**20, max_batch=True)
    row = {"model": name, "limit": limit, "said": found.max_batch, "notes": list(found.notes)}
    print("ROW " + json.dumps(row), flush=True)


def ask(name: str, batch: int, limit: int) -> dict[str, Any]:
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, __file__, "--predict", name, str(batch), str(limit)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if not rows:
        raise RuntimeError(f"{name}: {done.stderr[-1500:]}")
    return dict(json.loads(rows[0]))


def tries(batch: int) -> dict[str, int]:
    """The predicted batch and the next that must not fit, which are run for real, and where halving would end."""
    return {
        "said": batch,
        "next": max(batch + 1, math.ceil(batch / 0.97)),
        "halved": 2 ** int(math.log2(max(1, batch))),
    }


def table() -> str:
    measured = {
        (row["model"], row["limit"], row["batch"]): row for row in map(json.loads, MEASURED.read_text().splitlines())
    }
    lines = ["| model | limit GiB | said | trains | 3% more | halving keeps | said ÷ halving |", "|" + "---|" * 7]
    for row in json.loads(PREDICTED.read_text())["said"]:
        name, limit, tried = row["model"], row["limit"], tries(row["said"])
        fits = {what: measured.get((name, limit, batch), {}).get("fits") for what, batch in tried.items()}
        words = {True: "fits", False: "out of memory", None: "not run"}
        lines.append(
            f"| {name} | {limit // 1024} | {tried['said']:,} | {words[fits['said']]} | {tried['next']:,}: {words[fits['next']]} | "
            f"{tried['halved']:,} | {tried['said'] / tried['halved']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="these only, with --ask")
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--predict", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.predict:
        predict(options.predict[0], int(options.predict[1]), int(options.predict[2]))
    elif options.ask:
        said = []
        for case in CASES:
            if options.models and case[0] not in options.models:
                continue
            said.append(ask(*case))
            print(said[-1], file=sys.stderr, flush=True)
        wanted = [[row["model"], tries(row["said"])[what], row["limit"]] for what in ("said", "next") for row in said]
        json.dump({"said": said, "wanted": wanted}, sys.stdout, indent=1)
    else:
        found = table()
        print(found)
        if options.write:
            put("plan.md", "largest batches", found)


if __name__ == "__main__":
    main()
