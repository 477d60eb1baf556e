"""The largest batch under a limit of TensorFlow's allocator on this CPU: what Legroom says, what is true, and what others get.

    python bench/largest_on_cpu.py [MODEL:BATCH …] [--lanes 1] [--write]

The limit is 2.3 times what the model takes with the batch that is named. *predicted* is `legroom.estimate(..., max_batch=True)`, *rehearsed* is
`legroom.rehearse(..., max_batch=True)`, which runs batches in more room than that. *true* is found with real runs under the limit, of twelve steps: it
trains, and what is 1% larger (or by one) runs out of memory. Halving ends at the largest power of two. Keras' own accumulation (`gradient_accumulation_steps=4`)
and Legroom's four micro-batches are run for real, too: the examples of one update. The table goes to docs/plan.md with --write.
"""

import argparse
import json
import math
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lanes import side_by_side
from limited_child import ask, placed

MIB = 2**20
CASES = (
    *("tutorial_cnn:8", "seed3:8", "gru:32", "lstm:8", "wavenet:2", "mixer:4", "super_resolution:2", "autoencoder:4"),
    *("bert:4", "both_ways:8"),
)
TIMES, STEPS, SURE, SLICES = 2.3, 3, 12, 4
WAYS = ("plain", "keras", "legroom")


def made(case: str, way: str, batch: int) -> tuple[Any, Any, Any]:
    import zoo

    name = case.split(":", maxsplit=1)[0]
    model, x, y = zoo.setup(name, batch, "float32")
    optimizer = model.optimizer
    if way == "keras":
        optimizer = type(optimizer).from_config({**optimizer.get_config(), "gradient_accumulation_steps": SLICES})
    model.compile(optimizer, model.loss, jit_compile=False)
    if way == "legroom":
        from legroom.changes.microbatch import split

        split(model, SLICES)
    return model, x, y * 0


def run(case: str, way: str, batch: int, steps: int) -> None:
    """Steps in this process, whose allocator is the BFC; prints the peaks, or that it ran out."""
    import tensorflow as tf

    model, x, y = made(case, way, batch)
    x, y = placed(x), placed(y)
    peaks = []
    try:
        for _ in range(steps):
            tf.config.experimental.reset_memory_stats("CPU:0")
            model.train_on_batch(x, y)
            peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])
    except tf.errors.ResourceExhaustedError:
        print("ROW " + json.dumps({"failed": True}), flush=True)
        return
    resident = tf.config.experimental.get_memory_info("CPU:0")["current"]
    print("ROW " + json.dumps({"failed": False, "peaks": peaks, "resident": resident}), flush=True)


def tell(case: str, limit: int) -> None:
    """What Legroom says, twice."""
    import legroom

    batch = int(case.split(":")[1])
    model, x, y = made(case, "plain", batch)
    said = legroom.estimate(model, (x, y), budget=limit, engine="op", max_batch=True).max_batch
    found = legroom.rehearse(model, (x, y), limit=limit, max_batch=True)
    print("ROW " + json.dumps({"predicted": said, "rehearsed": found.max_batch, "seconds": found.seconds}), flush=True)


def child(*arguments: str, limit: int | None = None) -> dict[str, Any]:
    return ask(__file__, *arguments, limit=limit)


def largest(case: str, way: str, limit: int, start: int) -> int:
    """The largest that trains, by real runs, and never by Legroom's own word."""
    from legroom.front.rehearsed_batches import find_largest
    from legroom.records.rehearsal import OomFact, Rehearsal

    def rehearse(batch: int | None, room: int, steps: int) -> Rehearsal:
        batch = start if batch is None else batch
        found = child("--run", case, "--way", way, "--batch", str(batch), "--steps", str(steps), limit=room)
        if found["failed"]:
            return Rehearsal(batch, "graph", room, out_of_memory=OomFact("", None, "", None, ""))
        peaks = found["peaks"]
        return Rehearsal(batch, "graph", room, max(peaks), peaks[0], tuple(peaks), found["resident"])

    return find_largest(rehearse, limit, 20_000 * MIB, STEPS).max_batch or 0


def true_largest(case: str, limit: int, start: int) -> int:
    """Made larger by 1% (or by one) for as long as that trains."""
    batch = largest(case, "plain", limit, start)
    while True:
        more = max(batch + 1, math.floor(batch * 1.01))
        if child("--run", case, "--way", "plain", "--batch", str(more), "--steps", str(SURE), limit=limit)["failed"]:
            return batch
        batch = more


def compare(case: str) -> dict[str, Any]:
    start = int(case.split(":")[1])
    row: dict[str, Any] = {"case": case}

    def note(**found: Any) -> None:
        row.update(found)
        print(json.dumps({"case": case, **found}), file=sys.stderr, flush=True)

    plain = child("--run", case, "--way", "plain", "--batch", str(start), "--steps", "3", limit=16_000 * MIB)
    limit = int(TIMES * max(plain["peaks"])) // MIB * MIB
    note(limit=limit, **child("--ask", case, "--limit", str(limit)))
    note(true=true_largest(case, limit, row["rehearsed"]))  # where to begin; where it ends is found by real runs
    note(keras=largest(case, "keras", limit, row["true"]) * SLICES)
    note(legroom=largest(case, "legroom", limit, row["true"] * SLICES))
    return row


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | limit MiB | true | predicted | rehearsed | of the true | halving | Keras accumulates 4 | Legroom, 4 micro-batches |"
    ]
    lines.append("|" + "---|" * 9)
    for row in rows:
        share = f"{row['predicted'] / row['true']:.0%}, {row['rehearsed'] / row['true']:.0%}"
        halved = 2 ** int(math.log2(max(1, row["true"])))
        cells = [row["case"].split(":")[0], f"{row['limit'] // MIB:,}", row["true"], row["predicted"], row["rehearsed"]]
        lines.append("| " + " | ".join(map(str, [*cells, share, halved, row["keras"], row["legroom"]])) + " |")
    sure = sum(row["predicted"] <= row["true"] for row in rows), sum(row["rehearsed"] <= row["true"] for row in rows)
    near = (
        sum(row["predicted"] >= 0.97 * row["true"] for row in rows),
        sum(row["rehearsed"] >= 0.97 * row["true"] for row in rows),
    )
    said = f"Never too large: predicted {sure[0]}, rehearsed {sure[1]} of {len(rows)}. At least 97% of the true one: predicted {near[0]}, rehearsed {near[1]}."
    return f"{said}\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--run")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--ask")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--lanes", type=int, default=1, help="cases at a time, two cores for each")
    parser.add_argument("--write", action="store_true", help="put the table into docs/plan.md")
    options = parser.parse_args()
    if options.run:
        run(options.run, options.way, options.batch, options.steps)
        return
    if options.ask:
        tell(options.ask, options.limit)
        return

    def find(case: str) -> dict[str, Any]:
        row = compare(case)
        print(table([row]).splitlines()[-1], file=sys.stderr, flush=True)
        return row

    rows = list(side_by_side(options.cases or CASES, find, options.lanes))
    print(table(rows))
    if options.write:
        from pages import put

        put("plan.md", "largest on a cpu", table(rows))


if __name__ == "__main__":
    main()
