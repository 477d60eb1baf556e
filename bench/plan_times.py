"""Predicted costs and savings of each action against a real H200's (bench/data/h200_plan_times.jsonl, made by bench/device/plan_times.py).

    python bench/plan_times.py [--write] [MODEL:BATCH:MODE …]

What each step computes, moves and starts is estimated here without a GPU. With --write the table goes to docs/accuracy-plan.md.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from pages import put

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "data" / "h200_plan_times.jsonl"
MIB = 2**20


def read_rows() -> dict[str, dict[str, Any]]:
    """Case → way → what was measured."""
    found: dict[str, dict[str, Any]] = {}
    for line in DATA.read_text().splitlines():
        row = json.loads(line)
        if "seconds" in row:
            found.setdefault(row["case"], {})[row["way"]] = row
    return found


def predict(case: str) -> None:
    """Estimates of one case, plain and with each action that was measured; prints a line for each."""
    import zoo

    from legroom.front.estimating import Estimator, capture_here
    from legroom.front.local_source import LocalSource
    from legroom.front.target import choose_card
    from legroom.plans.cost import slowdown
    from legroom.records.plan import action_from_json

    name, batch, mode = case.split(":")
    model, x, y = zoo.setup(name, int(batch), "float32")
    model.compile(model.optimizer, model.loss, jit_compile=mode == "xla")
    card = choose_card("h200", None)
    assert card.gpu is not None
    plain = None
    with Estimator(
        LocalSource(capture_here(model, (x, y), None)), card, "op" if mode == "graph" else "xla"
    ) as estimator:
        for way, row in sorted(read_rows()[case].items(), key=lambda item: item[0] != "plain"):
            actions = tuple(action_from_json(action) for action in row["actions"])
            estimator.change(actions)
            found = estimator.at(int(batch))
            plain = plain or found
            policy = next((action["policy"] for action in actions if action.name == "mixed_precision"), "float32")
            counted = {key: getattr(found, key) for key in ("peak_bytes", "flops", "moved_bytes", "launches")}
            ratio = slowdown(found, plain, card.gpu, policy)
            print("ROW " + json.dumps({"case": case, "way": way, "ratio": ratio, **counted}), flush=True)


def ask(case: str) -> list[dict[str, Any]]:
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, __file__, "--predict", case], env=env, capture_output=True, text=True, check=False
    )
    found = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if not found:
        raise RuntimeError(f"{case}: {done.stderr[-1500:]}")
    return found


def table(said: list[dict[str, Any]]) -> str:
    real = read_rows()
    lines = ["| model | batch | runs | action | time: said, real | saved MiB: said, real |", "|" + "---|" * 6]
    times, savings = [], []
    plain = {row["case"]: row for row in said if row["way"] == "plain"}
    for row in said:
        if row["way"] == "plain":
            continue
        case, way = row["case"], row["way"]
        before, after = real[case]["plain"], real[case][way]
        ratio = after["seconds"] / before["seconds"]
        saved = plain[case]["peak_bytes"] - row["peak_bytes"], before["peak"] - after["peak"]
        if row["ratio"] is not None:
            times.append(abs(row["ratio"] / ratio - 1))
        savings.append(abs(saved[0] / saved[1] - 1))
        shown = "?" if row["ratio"] is None else f"{row['ratio']:.2f}"
        name, batch, mode = case.split(":")
        lines.append(
            f"| {name} | {batch} | {mode} | {way} | {shown}, {ratio:.2f} | {saved[0] / MIB:,.0f}, {saved[1] / MIB:,.0f} |"
        )
    summary = (
        f"Times: median error {statistics.median(times):.0%}, worst {max(times):.0%}. "
        f"Savings: median error {statistics.median(savings):.0%}, worst {max(savings):.0%}, "
        f"{sum(error <= 0.1 for error in savings)} of {len(savings)} within 10%."
    )
    return f"{summary}\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--predict")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.predict:
        predict(options.predict)
        return
    said = []
    for case in options.cases or sorted(read_rows()):
        print(case, file=sys.stderr, flush=True)
        said += ask(case)
    found = table(said)
    print(found)
    if options.write:
        put("accuracy-plan.md", "times", found)


if __name__ == "__main__":
    main()
