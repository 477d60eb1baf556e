"""What each action saves, predicted and measured on TensorFlow's real allocator on this CPU, into docs/accuracy-plan.md with --write.

    python bench/savings.py [MODEL:BATCH …] [--lanes 1] [--cores 1] [--processes 3] [--write]

Measured is the middle of five steps' own peaks in each of three processes, since with several threads operations run in another order each time, and
each process starts its first ones in an order of its own; the least and the largest of them all say how far that goes. With --cores 1 there is one order only, and what is left is the error of the prediction. An action that saves less than 3% of the peak is not counted: it would not be proposed.
"""

import argparse
import functools
import json
import pathlib
import statistics
import sys
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


def compare(case: str, processes: int = PROCESSES) -> list[dict[str, Any]]:
    said = ask(__file__, "--predict", case)
    rows = []
    for way in said:
        peaks = []
        for _ in range(processes):
            peaks += ask(__file__, "--measure", case, way, limit=20_000 * MIB).get("peaks", [])
        if peaks:
            rows.append({"case": case, "way": way, "said": said[way], "peaks": peaks})
            print("FOUND " + json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(table(rows).split("|---|\n")[-1].strip(), file=sys.stderr, flush=True)
    return rows


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
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--predict", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy-plan.md")
    options = parser.parse_args()
    if options.measure or options.predict:
        found = measure(*options.measure) if options.measure else predict(options.predict)
        print("ROW " + json.dumps(found), flush=True)
        return
    find = functools.partial(compare, processes=options.processes)
    rows = [row for found in side_by_side(options.cases or CASES, find, options.lanes, options.cores) for row in found]
    print(table(rows))
    if options.write:
        from pages import put

        put("accuracy-plan.md", "savings in one order" if options.cores == 1 else "savings", table(rows))


if __name__ == "__main__":
    main()
