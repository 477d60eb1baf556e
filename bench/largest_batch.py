"""The largest batch that Legroom predicts against the largest that really trains under a limit on an H200, op by op or compiled.

    python bench/largest_batch.py xla --ask [MODEL …]     (predicts, a minute a model; no GPU; into bench/data/largest_said_xla.json)
    python bench/device/largest.py …                      (on a machine with a GPU; its lines are bench/data/h200_largest_xla.jsonl)
    python bench/largest_batch.py xla [--write]           (the table; with --write into docs/accuracy-plan.md)

The same with `op`. *true* trains 12 steps in a process of its own, and what is 1% larger (or by one) runs out of memory there. Where not all were tried between what trained and what ran out, both
ends are given, and the share is that of the larger one. Halving ends at a power of two; Keras' own accumulation over four batches is run for real on the same card, to 3%: the examples of one update.
"""

import argparse
import concurrent.futures
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
SLICES = 4
PAGES = {"op": "largest op by op", "xla": "largest batches"}
Case = tuple[str, str, int]
COMPILED: dict[Case, int] = {  # and a batch to begin with
    **{(name, "float32", 8192): start for name, start in (
        *(("gpt", 26), ("bert", 175), ("translator", 160), ("long_attention", 130), ("tabular", 29_000), ("patches", 950)),
        *(("linear_attention", 200), ("wide_dense", 18_000), ("recommender", 420_000), ("mlp", 680_000)),
        *(("resnet50", 95), ("vit", 136), ("mobilenetv2", 140), ("super_resolution", 124), ("mixer", 680), ("xception", 32)),
        *(("densenet121", 80), ("efficientnetb0", 120), ("wavenet", 300), ("stride_net", 700), ("inceptionv3", 70)),
        *(("resnet101v2", 64), ("convnexttiny", 50), ("efficientnetv2b0", 120), ("odd_unet", 64), ("sound", 800), ("volume", 90)),
        *(("vgg16", 41), ("unet", 46), ("autoencoder", 397), ("tutorial_cnn", 157), ("seed3", 50)),
    )},
    **{(name, "mixed_bfloat16", 8192): start for name, start in (("gpt", 42), ("bert", 250), ("vit", 260), ("resnet50", 180))},
}  # fmt: skip


def measured(engine: str) -> dict[Case, dict[str, Any]]:
    """What was found on the card for each case: what the search came to (op by op, where the same batch may train or not), or the largest that trained and
    what is below the smallest that ran out."""
    found: dict[Case, dict[str, Any]] = {}
    ran: dict[Case, dict[int, list[bool]]] = {}
    for row in map(json.loads, (DATA / f"h200_largest_{engine}.jsonl").read_text().splitlines()):
        case = row["model"], row["policy"], row["limit"]
        if engine == "op" and "true" in row:
            found[case] = row
        elif engine == "op" and row.get("fits") is not None and row.get("way") == "plain":
            ran.setdefault(case, {}).setdefault(row["batch"], []).append(row["fits"])
        elif engine == "xla" and row.get("fits") is not None and row.get("way", "plain") in ("plain", "keras"):
            known = found.setdefault(case, {"trains": 0, "true": math.inf, "keras": 0})
            if row.get("way") == "keras":
                known["keras"] = max(known["keras"], SLICES * row["batch"] * row["fits"])
            elif row["fits"]:
                known["trains"] = max(known["trains"], row["batch"])
            else:
                known["true"] = min(known["true"], row["batch"] - 1)
    found = {case: row | {"ran": ran.get(case, {})} for case, row in found.items()}
    return {case: row for case, row in found.items() if row.get("trains", 1) and row["true"] < math.inf}


def predict(engine: str, name: str, policy: str, limit: int, start: int, *, only_peak: bool) -> None:
    import zoo

    import legroom

    model, x, y = zoo.setup(name, start, policy)
    model.compile(model.optimizer, model.loss, jit_compile=engine == "xla")
    found = legroom.estimate(model, (x, y), gpu="h200", budget=limit * 2**20, engine=engine, max_batch=not only_peak)
    said = {"peak": found.peak_bytes} if only_peak else {"said": found.max_batch, "notes": found.notes}
    print("ROW " + json.dumps(said), flush=True)


def ask(engine: str, case: Case, start: int, *, only_peak: bool = False) -> dict[str, Any]:
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, __file__, engine, "--predict", *map(str, case), str(start)]
    command += ["--peaks"] * only_peak
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if not rows:
        raise RuntimeError(f"{case}: {done.stderr[-1500:]}")
    found = json.loads(rows[0])
    return (
        found
        if only_peak
        else {
            "model": case[0],
            "policy": case[1],
            "limit": case[2],
            "start": found["said"],
            "jit": engine == "xla",
            **found,
        }
    )


def ask_all(engine: str, models: list[str], lanes: int) -> None:
    wanted = COMPILED if engine == "xla" else {case: max(1, row["true"] // 2) for case, row in measured(engine).items()}
    path = DATA / f"largest_said_{engine}.json"
    said = {(row["model"], row["policy"], row["limit"]): row for row in json.loads(path.read_text())}
    with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
        asked = {
            pool.submit(ask, engine, case, start): case
            for case, start in wanted.items()
            if not models or case[0] in models
        }
        for done in concurrent.futures.as_completed(asked):
            if done.exception() is not None:
                print(done.exception(), file=sys.stderr, flush=True)
                continue
            said[asked[done]] = done.result()
            print(done.result(), file=sys.stderr, flush=True)
            path.write_text(json.dumps([said[case] for case in wanted if case in said], indent=1) + "\n")


def peaks(models: list[str]) -> None:
    """What compiled steps took near a limit, and what is said of them: one line for each that trained."""
    for row in map(json.loads, (DATA / "h200_largest_xla.jsonl").read_text().splitlines()):
        if row.get("fits") and row.get("way", "plain") == "plain" and (not models or row["model"] in models):
            found = ask("xla", (row["model"], row["policy"], row["limit"]), row["batch"], only_peak=True)
            print(row["model"], row["limit"], row["batch"], f"{found['peak'] / row['peak'] - 1:+.2%}", flush=True)


def table(engine: str) -> str:
    rows = json.loads((DATA / f"largest_said_{engine}.json").read_text())
    found = measured(engine)
    lines = [
        "| model | limit GiB | true | predicted | of the true | halving | Keras accumulates 4 |"
        + " run as predicted |" * (engine == "op"),
        "|" + "---|" * (8 if engine == "op" else 7),
    ]
    shares, sure = [], 0
    for row in rows:
        name, policy, limit = case = row["model"], row["policy"], row["limit"]
        if case not in found:
            continue
        true, said, keras = found[case]["true"], row["said"], found[case].get("keras")
        shares.append(said / true)
        trains = found[case].get("trains", true)
        sure += said <= trains
        halved = 2 ** int(math.log2(max(1, trains)))
        label = name if policy == "float32" else f"{name}, {policy}"
        cells = [
            label,
            limit // 1024,
            f"{true:,}" if trains == true else f"{trains:,} to {true:,}",
            f"{said:,}",
            f"{shares[-1]:.1%}",
            f"{halved:,}",
            f"{keras:,}{' at least' * (engine == 'xla')}" if keras else "not run",
        ]
        if engine == "op":
            tries = found[case]["ran"].get(said)
            cells.append("not run" if not tries else "trains" if all(tries) else "**runs out**")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    near = sum(0.97 <= share <= 1 for share in shares)
    return (
        f"Not too large: {sure} of {len(shares)}. At least 97% of the true one: {near}.\n\n" + "\n".join(lines) + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("op", "xla"))
    parser.add_argument("models", nargs="*", help="these only, with --ask")
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--lanes", type=int, default=1, help="models at a time, with --ask")
    parser.add_argument(
        "--peaks",
        action="store_true",
        help="what compiled steps took near the limit beside what is said (a minute a line)",
    )
    parser.add_argument("--predict", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.predict:
        name, policy, limit, start = options.predict
        predict(options.engine, name, policy, int(limit), int(start), only_peak=options.peaks)
    elif options.peaks:
        peaks(options.models)
    elif options.ask:
        ask_all(options.engine, options.models, options.lanes)
    else:
        found = table(options.engine)
        print(found)
        if options.write:
            put("accuracy-plan.md", PAGES[options.engine], found)


if __name__ == "__main__":
    main()
