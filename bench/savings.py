"""What each action saves, predicted and measured on TensorFlow's real allocator on this CPU, into docs/accuracy-plan.md with --write.

    python bench/savings.py [MODEL:BATCH …] [--lanes 1] [--cores 1] [--processes 3] [--resume] [--rows FILE] [--write]

Measured is the middle of five steps' own peaks in each of several processes, since with several threads operations run in another order each time, and
each process starts its first ones in an order of its own; the least and the largest of them all say how far that goes. With --cores 1 there is one order only, and what is left is the error of the prediction. An action that saves less than 3% of the peak is not counted: it would not be proposed.
The rows are kept as they come, a process each; with --resume more are added to them, and with --processes 0 only what is said is found anew.
"""

import argparse
import functools
import json
import pathlib
import statistics
import sys
import threading
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lanes import side_by_side
from limited_child import ask, placed
from ways import actions_of

MIB = 2**20
CASES = (
    *("vit:8", "bert:32", "gpt:2", "super_resolution:8", "mixer:16", "wavenet:8", "autoencoder:8", "seed3:8", "tutorial_cnn:8"),
    *("resnet50:8", "unet:2", "mobilenetv2:8", "convnexttiny:4", "sound:32", "gru:128", "both_ways:64", "lstm:32", "tagger:64"),
)  # fmt: skip
WAYS = ("plain", "slices_2", "slices_4", "blocks_half", "dropout")
WARM, STEPS, PROCESSES, COUNTED = 1, 5, 3, 0.03
SAID = "said"
ROWS = pathlib.Path(__file__).resolve().parent / "data" / "savings.jsonl"


def set_up(case: str) -> tuple[Any, Any, Any]:
    import zoo

    name, batch = case.split(":")
    model, x, y = zoo.setup(name, int(batch), "float32")
    model.compile(model.optimizer, model.loss, jit_compile=False)
    return model, x, y * 0


def measure(case: str, way: str) -> dict[str, Any]:
    """Steps in this process, whose allocator is the BFC: each one's own peak."""
    import tensorflow as tf

    from legroom.changes.actions import perform
    from legroom.errors import InputError

    model, x, y = set_up(case)
    actions = actions_of(model, len(x), way)
    if not actions and way != "plain":
        return {"refused": "nothing to do"}
    try:
        perform(model, actions)
    except InputError as error:
        return {"refused": str(error)}
    x, y = placed(x), placed(y)
    peaks = []
    for step in range(WARM + STEPS):
        tf.config.experimental.reset_memory_stats("CPU:0")
        model.train_on_batch(x, y)
        if step >= WARM:
            peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])
    return {"peaks": peaks}


def predict(case: str) -> dict[str, Any]:
    """Each action's predicted peak."""
    from legroom.errors import LegroomError
    from legroom.front.estimating import Estimator, capture_here
    from legroom.front.local_source import LocalSource
    from legroom.front.target import choose_card

    model, x, y = set_up(case)
    found = {}
    with Estimator(LocalSource(capture_here(model, (x, y), None)), choose_card(None, 64 * 2**30), "op") as estimator:
        for way in WAYS:
            actions = actions_of(model, len(x), way)
            if not actions and way != "plain":
                continue
            try:
                estimator.change(actions)
                found[way] = estimator.at(len(x)).peak_bytes
            except LegroomError:
                continue
    return found


def ask_for(task: tuple[str, str], keep: Callable[[dict[str, Any]], None]) -> None:
    """One process: what is said of a case's actions, or one action's steps measured; a row of its own, which is kept when it is there."""
    case, way = task
    if way == SAID:
        row = {"case": case, "said": ask(__file__, "--predict", case)}
    else:
        row = {"case": case, "way": way, **ask(__file__, "--measure", case, way, limit=20_000 * MIB)}
    print(json.dumps(row), file=sys.stderr, flush=True)
    keep(row)


def gathered(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each case and action that was predicted and measured: what is said, and the peaks of all processes."""
    said = {row["case"]: row["said"] for row in found if "said" in row}
    rows = []
    for case, way in dict.fromkeys((row["case"], row["way"]) for row in found if row.get("peaks")):
        peaks = [
            peak for row in found if row.get("way") == way and row["case"] == case for peak in row.get("peaks", ())
        ]
        if way in said.get(case, ()):
            rows.append({"case": case, "way": way, "said": said[case][way], "peaks": peaks})
    order = list(dict.fromkeys(row["case"] for row in found))
    measured = {row["case"] for row in rows if row["way"] == "plain"}
    rows.sort(key=lambda row: (order.index(row["case"]), WAYS.index(row["way"])))
    return [row for row in rows if row["case"] in measured]


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| model | batch | action | peak MiB: said | measured | saved MiB: said | measured | off |"]
    lines.append("|" + "---|" * 8)
    plain = {row["case"]: row for row in rows if row["way"] == "plain"}
    errors = []
    for row in rows:
        name, batch = row["case"].split(":")
        before = plain[row["case"]]
        real = statistics.median(row["peaks"])
        spread = f"{real / MIB:,.0f} ({min(row['peaks']) / MIB:,.0f} to {max(row['peaks']) / MIB:,.0f})"
        cells = [name, batch, row["way"], f"{row['said'] / MIB:,.0f}", spread]
        if row["way"] != "plain":
            said, saved = before["said"] - row["said"], statistics.median(before["peaks"]) - real
            cells += [f"{said / MIB:,.0f}", f"{saved / MIB:,.0f}"]
            if saved >= COUNTED * statistics.median(before["peaks"]):
                errors.append(abs(said / saved - 1))
                cells += [f"{said / saved - 1:+.0%}"]
            else:
                cells += ["not counted"]
        lines.append("| " + " | ".join(cells + [""] * (8 - len(cells))) + " |")
    if not errors:
        return "\n".join(lines) + "\n"
    within = sum(error <= 0.1 for error in errors)
    said = f"{within} of {len(errors)} savings are within 10%; median error {statistics.median(errors):.1%}, worst {max(errors):.0%}."
    return f"{said}\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--lanes", type=int, default=1, help="cases at a time, two cores for each")
    parser.add_argument("--cores", type=int, help="for each case; with one, operations run in one order")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="that each way is measured in")
    parser.add_argument("--resume", action="store_true", help="keep what the file has")
    parser.add_argument("--rows", type=pathlib.Path, default=ROWS, help="the file")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--predict", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy-plan.md")
    options = parser.parse_args()
    if options.measure or options.predict:
        found = measure(*options.measure) if options.measure else predict(options.predict)
        print("ROW " + json.dumps(found), flush=True)
        return
    cases = options.cases or CASES
    found = [json.loads(line) for line in options.rows.read_text().splitlines()] if options.resume else []
    known = {row["case"] for row in found if "said" in row} if options.processes else set()
    tasks = [(case, SAID) for case in cases if case not in known]
    tasks += [(case, way) for _ in range(options.processes) for case in cases for way in WAYS]
    lock = threading.Lock()

    def keep(row: dict[str, Any]) -> None:
        with lock:
            found.append(row)
            options.rows.write_text("".join(json.dumps(one) + "\n" for one in found))

    list(side_by_side(tasks, functools.partial(ask_for, keep=keep), options.lanes, options.cores))
    rows = gathered(found)
    print(table(rows))
    if options.write:
        from pages import put

        put("accuracy-plan.md", "savings in one order" if options.cores == 1 else "savings", table(rows))


if __name__ == "__main__":
    main()
