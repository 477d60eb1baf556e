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
LIMIT_MIB = 8192
MODELS = {
    **{"resnet50": 32, "unet": 16, "vit": 32, "gpt": 8, "bert": 64, "mobilenetv2": 64, "vgg16": 32},
    **{"autoencoder": 64, "tutorial_cnn": 64, "super_resolution": 32},
}


def predict(name: str) -> None:
    import zoo

    import legroom

    model, x, y = zoo.setup(name, MODELS[name], "float32")
    model.compile(model.optimizer, model.loss, jit_compile=True)
    found = legroom.estimate(model, (x, y), gpu="h200", budget=LIMIT_MIB * 2**20, max_batch=True)
    print("ROW " + json.dumps({"model": name, "max_batch": found.max_batch, "notes": list(found.notes)}), flush=True)


def ask(name: str) -> dict[str, Any]:
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, __file__, "--predict", name]
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
    measured = {(row["model"], row["batch"]): row for row in map(json.loads, MEASURED.read_text().splitlines())}
    lines = ["| model | said | trains | 3% more | halving keeps | said ÷ halving |", "|" + "---|" * 6]
    for name, said in json.loads(PREDICTED.read_text())["said"].items():
        tried = tries(said)
        fits = {what: measured.get((name, batch), {}).get("fits") for what, batch in tried.items()}
        words = {True: "fits", False: "out of memory", None: "not run"}
        lines.append(
            f"| {name} | {said} | {words[fits['said']]} | {tried['next']}: {words[fits['next']]} | "
            f"{tried['halved']} | {said / tried['halved']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--predict")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.predict:
        predict(options.predict)
    elif options.ask:
        said = {}
        for name in MODELS:
            found = ask(name)
            print(found, file=sys.stderr, flush=True)
            said[name] = found["max_batch"]
        wanted = [[name, tries(most)[what], LIMIT_MIB] for what in ("said", "next") for name, most in said.items()]
        json.dump({"said": said, "wanted": wanted}, sys.stdout, indent=1)
    else:
        found = table()
        print(found)
        if options.write:
            put("plan.md", "largest batches", found)


if __name__ == "__main__":
    main()
