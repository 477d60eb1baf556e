"""Plans against the real allocator: a step that runs out of memory at half its peak, and the same step with its plan.

    python bench/plan.py [MODEL:BATCH …] [--lanes 1] [--write]

For each model: the peak as it is, measured; under half of that as the real limit of TensorFlow's BFC allocator it must fail; `legroom.plan`
for that budget; and with the plan applied, under the same limit, it must train (17 steps). The table goes to docs/accuracy-plan.md with --write.
"""

import argparse
import json
import pathlib
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lanes import side_by_side
from limited_child import ask, placed

MIB = 2**20
CASES = (
    *("vit:16", "bert:64", "gpt:4", "super_resolution:16", "mixer:32", "wavenet:16", "gru:128", "both_ways:128"),
    *("lstm:128", "tagger:128", "odd_unet:16", "mlp:8192", "seed3:8", "sound:64", "convnexttiny:4", "resnet50:16"),
    *("mobilenetv2:16", "unet:4", "autoencoder:8", "tutorial_cnn:8", "odd_unet:8"),
)
STEPS = 3
PATIENCE = 240.0  # TensorFlow waits ten seconds for each op that finds no room: what has not trained four steps by then has failed
PLANNED_STEPS = 16  # peaks climb for some steps as the allocator is used


def setup(case: str) -> tuple[Any, Any, Any]:
    import zoo

    name, batch = case.split(":")
    model, x, y = zoo.setup(name, int(batch), "float32")
    return model, x, y * 0


def measure(case: str, plan: str | None) -> None:
    """Train a few steps in this process, whose allocator is the BFC; prints the peak, or that it ran out."""
    import tensorflow as tf

    import legroom

    model, x, y = setup(case)
    model.compile(model.optimizer, model.loss, jit_compile=False)
    steps = STEPS
    if plan:
        legroom.apply(legroom.load_plan(plan), model)
        steps = PLANNED_STEPS
    x, y = placed(x), placed(y)
    try:
        model.train_on_batch(x, y)
        tf.config.experimental.reset_memory_stats("CPU:0")
        started = time.monotonic()
        for _ in range(steps):
            model.train_on_batch(x, y)
    except tf.errors.ResourceExhaustedError:
        print("ROW " + json.dumps({"failed": True, "peak": None, "seconds": None}), flush=True)
        return
    peak = tf.config.experimental.get_memory_info("CPU:0")["peak"]
    row = {"failed": False, "peak": peak, "seconds": (time.monotonic() - started) / steps}
    print("ROW " + json.dumps(row), flush=True)


def make_plan(case: str, budget: int, path: str) -> None:
    import legroom

    model, x, y = setup(case)
    model.compile(model.optimizer, model.loss, jit_compile=False)
    started = time.monotonic()
    planning = legroom.plan(model, (x, y), budget=budget, engine="op")
    legroom.save_plan(planning, path)
    print("ROW " + json.dumps({"seconds": time.monotonic() - started}), flush=True)


def child(*arguments: str, limit: int | None = None, patience: float | None = None) -> dict[str, Any]:
    return {"peak": None, "seconds": None, **ask(__file__, *arguments, limit=limit, patience=patience)}


def compare(case: str, folder: pathlib.Path) -> dict[str, Any]:
    plain = child("--measure", case, limit=16_000 * MIB)
    limit = plain["peak"] // 2 // MIB * MIB
    tight = child("--measure", case, limit=limit, patience=PATIENCE)
    path = folder / f"{case.replace(':', '-')}.json"
    planned = child("--plan", case, "--budget", str(limit), "--out", str(path))
    view = json.loads(path.read_text())
    row = {"case": case, "plain": plain, "limit": limit, "failed": tight["failed"], "planning": planned["seconds"]}
    row |= {"predicted": view["unchanged"]["peak_bytes"]}
    if view["chosen"] is None:
        return row | {"plan": None, "smallest": min(plan["high_bytes"] for plan in view["plans"])}
    chosen = view["plans"][view["chosen"]]
    return row | {"plan": chosen, "real": child("--measure", case, "--with", str(path), limit=limit)}


def words(plan: dict[str, Any]) -> str:
    names = {
        "microbatch": lambda a: f"{a['count']} micro-batches",
        "remat": lambda a: f"{sum(map(len, a['blocks']))} recomputed",
    }
    return ", ".join(names.get(action["name"], lambda a: a["name"])(action) for action in plan["actions"])


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | batch | peak MiB | limit MiB | fails there | plan | predicted MiB | real MiB | trains | saved: predicted, real MiB | time: predicted, real | planning s |"
    ]
    lines.append("|" + "---|" * 12)
    for row in rows:
        name, batch = row["case"].split(":")
        start = [
            name,
            batch,
            f"{row['plain']['peak'] / MIB:,.0f}",
            f"{row['limit'] / MIB:,.0f}",
            "yes" if row["failed"] else "no",
        ]
        if row["plan"] is None:
            cells = [
                *start,
                f"none fits (smallest {row['smallest'] / MIB:,.0f})",
                "",
                "",
                "**no**",
                "",
                "",
                f"{row['planning']:.0f}",
            ]
        else:
            plan, real = row["plan"], row["real"]
            ratio = "" if real["failed"] else f"{real['seconds'] / row['plain']['seconds']:.2f}"
            peak = "" if real["failed"] else f"{real['peak'] / MIB:,.0f}"
            cells = [*start, words(plan), f"{plan['peak_bytes'] / MIB:,.0f} (≤ {plan['high_bytes'] / MIB:,.0f})", peak]
            saved = (row["predicted"] - plan["peak_bytes"]) / MIB
            really = "" if real["failed"] else f"{(row['plain']['peak'] - real['peak']) / MIB:,.0f}"
            cells += [
                "**no**" if real["failed"] else "yes",
                f"{saved:,.0f}, {really}",
                f"{plan['slowdown'] or 0:.2f}, {ratio}",
                f"{row['planning']:.0f}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    good = sum(row["plan"] is not None and not row["real"]["failed"] for row in rows)
    return f"{good} of {len(rows)} train under half their peak, at the first try.\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--measure")
    parser.add_argument("--with", dest="plan_file")
    parser.add_argument("--plan")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--out")
    parser.add_argument("--lanes", type=int, default=1, help="cases at a time, two cores for each")
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy-plan.md")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.plan_file)
        return
    if options.plan:
        make_plan(options.plan, options.budget, options.out)
        return
    import tempfile

    with tempfile.TemporaryDirectory() as folder:

        def find(case: str) -> dict[str, Any]:
            row = compare(case, pathlib.Path(folder))
            print(table([row]).splitlines()[-1], file=sys.stderr, flush=True)
            return row

        rows = list(side_by_side(options.cases or CASES, find, options.lanes))
    print(table(rows))
    if options.write:
        from pages import put

        put("accuracy-plan.md", "half", table(rows))


if __name__ == "__main__":
    main()
