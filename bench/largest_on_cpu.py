"""The largest batch under a limit of TensorFlow's allocator on this CPU: what Legroom says, what is true, and what others get.

    python bench/largest_on_cpu.py [MODEL:BATCH …] [--lanes 1] [--write]

The limit is 2.3 times what the model takes with the batch that is named. *predicted* is `legroom.estimate(..., max_batch=True)`, *rehearsed* is
`legroom.rehearse(..., max_batch=True)`. *true* is found with real runs under the limit, without Legroom: it trains 24 steps in each of three processes, and what is 1% larger
(or by one) does not. Halving ends at the largest power of two. Keras' own accumulation (`gradient_accumulation_steps=4`) and Legroom's four micro-batches are run for real, too, to 3%:
the examples of one update. A run that has not come to its end after four minutes has failed: TensorFlow waits ten seconds for each op that finds no room. The table goes to docs/accuracy-plan.md with --write.
"""

import argparse
import json
import math
import pathlib
import sys
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lanes import side_by_side
from limited_child import ask, placed

MIB = 2**20
CASES = (
    *(
        "both_ways:32",
        "small_bert:24",
        "mixer:24",
        "small_unet:16",
        "small_tutorial_cnn:24",
        "small_super_resolution:24",
    ),
    *("small_autoencoder:24", "small_wavenet:24", "gru:48", "mlp:4096"),
)
TIMES, STEPS, PROCESSES, SLICES, PATIENCE = 2.3, 24, 3, 4, 240.0
WAYS = ("plain", "keras", "legroom")


def made(case: str, way: str, batch: int, policy: str = "float32", jit: bool = False) -> tuple[Any, Any, Any]:
    import zoo

    name = case.split(":", maxsplit=1)[0]
    model, x, y = zoo.setup(name, batch, policy)
    optimizer = model.optimizer
    if way == "keras":
        optimizer = type(optimizer).from_config({**optimizer.get_config(), "gradient_accumulation_steps": SLICES})
    model.compile(optimizer, model.loss, jit_compile=jit)
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


def child(*arguments: str, limit: int | None = None, patience: float | None = None) -> dict[str, Any]:
    return ask(__file__, *arguments, limit=limit, patience=patience)


def trains(case: str, way: str, limit: int, batch: int, processes: int) -> bool:
    asked = ("--run", case, "--way", way, "--batch", str(batch), "--steps", str(STEPS))
    return not any(child(*asked, limit=limit, patience=PATIENCE)["failed"] for _ in range(processes))


def largest(fits: Callable[[int], bool], start: int, step: float, low: int = 0) -> int:
    """The largest that fits, to that step: from the start up, or down, in strides that grow, and then halved. `low` is known to."""
    high, stride, batch = None, step - 1, start
    while high is None or high > max(low + 1, math.floor(low * step)):
        if fits(batch):
            low = batch
        else:
            high = batch
        if high is None:
            batch = max(low + 1, math.floor(low * (1 + stride)))
        elif not low:
            batch = max(1, min(high - 1, math.floor(high * (1 - stride))))
        else:
            batch = (low + high) // 2
        stride = min(0.5, 2 * stride)
        if high == 1:
            return 0
    return low


def compare(case: str) -> dict[str, Any]:
    start = int(case.split(":")[1])
    row: dict[str, Any] = {"case": case}

    def note(**found: Any) -> None:
        row.update(found)
        print(json.dumps({"case": case, **found}), file=sys.stderr, flush=True)

    plain = child("--run", case, "--way", "plain", "--batch", str(start), "--steps", "3", limit=16_000 * MIB)
    limit = int(TIMES * max(plain["peaks"])) // MIB * MIB
    note(limit=limit, **child("--ask", case, "--limit", str(limit)))
    # where to begin is taken from what was rehearsed; where it ends is found by real runs
    note(true=largest(lambda batch: trains(case, "plain", limit, batch, PROCESSES), row["rehearsed"], 1.01))
    begin = (row["true"] - 1) * SLICES
    note(keras=largest(lambda batch: trains(case, "keras", limit, batch, 1), row["true"], 1.03) * SLICES)
    note(legroom=largest(lambda batch: trains(case, "legroom", limit, batch, 1), begin, 1.03))
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
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy-plan.md")
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

        put("accuracy-plan.md", "largest on a cpu", table(rows))


if __name__ == "__main__":
    main()
