"""Training that runs out of memory on purpose, guarded: `python bench/guard.py --write` puts the tables into docs/guard.md.

`random`: 200 real out-of-memory errors at random steps with random amounts of memory left. `exhaustive`: a small step with each
amount of memory that it could find. `shapes`: compiled steps of 50 shapes under a limit. `cost`: guarded and plain steps in turn.

TensorFlow waits ten seconds before it refuses memory. Most of the time is that waiting, so several processes wait at once.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pages import put

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "guard"), str(ROOT / "src")]

WORKER = ROOT / "tests" / "guard" / "guard_worker.py"
settings: dict[str, Any] = {"workers": 8, "seconds": 0, "only": ""}
GROUPS = (  # model, how it runs, optimizer, precision, tolerance
    ("deep", "graph", "sgd", "float32", 1e-4),
    ("deep", "eager", "sgd", "float32", 1e-4),
    ("dense", "graph", "adam", "float64", 1e-8),
    ("dense", "eager", "adam", "float64", 1e-8),
    ("norm", "graph", "sgd", "float32", 1e-4),
    ("norm", "eager", "sgd", "float32", 1e-4),
    ("norm", "graph", "adam", "float64", 1e-8),
    ("dense", "graph", "adamw", "float64", 1e-8),
    ("dense", "graph", "ema", "float64", 1e-8),
    ("dense", "graph", "scaled", "float64", 1e-8),
    ("dense", "graph", "accumulating", "float64", 1e-8),
    ("deep", "loop", "sgd", "float32", 1e-4),  # loops of one's own: a tf.function, a plain one
    ("deep", "loop eager", "sgd", "float32", 1e-4),
    ("dense", "loop", "adam", "float64", 1e-8),
    ("norm", "loop", "sgd", "float32", 1e-4),
)


def ask(cases, limit_mb=96, backend="tensorflow"):
    """The worker's answers to these cases, in one process; fewer if it died."""
    import guard_worker

    environment = guard_worker.environment(limit_mb * (4 if guard_worker.DEVICE != "CPU:0" else 1), backend)
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    command = ["nice", "-n", "15", sys.executable, str(WORKER)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, env=environment, check=False)
    found = [json.loads(line.split(" ", 1)[1]) for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if len(found) < len(cases):
        print(f"{len(cases) - len(found)} cases without an answer: {cases[0]}", file=sys.stderr)
        print(done.returncode, done.stderr[-1500:], file=sys.stderr)
    return found


def random_cases(group, count, seed):
    """Runs of six steps; memory is short in two of them."""
    model, mode, optimizer, dtype, _ = group
    draw = random.Random(seed)
    for number in range(count):
        low, high = {"norm": (0.7, 0.97), "dense": (0.15, 0.6)}.get(model, (0.35, 0.95))
        fills = sorted([step, draw.uniform(low, high)] for step in draw.sample(range(6), 2))
        yield {
            "name": f"{number}", "model": model, "mode": mode, "optimizer": optimizer, "dtype": dtype,
            "batch": 32, "steps": 6, "fills": fills,
        }  # fmt: skip


def run_random(count, seconds):
    """Each group in processes of its own, until there are enough errors or time is up."""
    each, until = -(-count // len(GROUPS)), time.monotonic() + seconds

    def one(group):
        rows = []
        for seed in range(24):
            if sum(row["ooms"] for row in rows) >= each:
                break
            if time.monotonic() > until:
                break
            rows += ask(list(random_cases(group, 3, seed)))
        print("\n".join(random_table([{"group": group, "rows": rows}])[-1:]), flush=True)
        return group, rows

    wanted = [group for group in GROUPS if settings["only"] in " ".join(map(str, group))]
    with ThreadPoolExecutor(settings["workers"]) as pool:
        return [{"group": group, "rows": rows} for group, rows in pool.map(one, wanted)]


def run_exhaustive(apart):
    """Ranges of free memory, spread over the workers: a tiny step in fine steps, and one whose tensors are larger in coarser ones."""
    cases = []
    for model, limit, step in (("tiny", 16, apart), ("dense", 64, 32 * apart)):
        for mode in ("graph", "eager", "loop"):
            for optimizer in ("adam", "sgd"):
                case = {
                    "exhaustive": True,
                    "model": model,
                    "mode": mode,
                    "optimizer": optimizer,
                    "batch": 8,
                    "steps": 1,
                }
                ranges = [{**case, "apart": step * 4, "least": 256 + part * step} for part in range(4)]
                cases += [(model, limit, mode, optimizer, one) for one in ranges]

    def one(case):
        model, limit, mode, optimizer, wanted = case
        found = ask([wanted], limit_mb=limit)
        return {"model": model, "mode": mode, "optimizer": optimizer, "found": found[0] if found else None}

    with ThreadPoolExecutor(settings["workers"]) as pool:
        return list(pool.map(one, cases))


SHAPES = """
import os, sys, time
import keras, numpy
import legroom
if os.environ.get("LEGROOM_GUARD_DEVICE") and keras.backend.backend() == "tensorflow":
    import guard_worker
    guard_worker.limit_gpu()
count, limit = int(sys.argv[1]), sys.argv[2]
keras.utils.set_random_seed(0)
layers = keras.layers
model = keras.Sequential([keras.Input((None, 8)), layers.Dense(32, activation="relu"), layers.Dense(32, activation="relu"),
                          layers.GlobalAveragePooling1D(), layers.Dense(3)])
model.compile("adam", "mse", jit_compile=True)
random = numpy.random.default_rng(3)
shapes = [(int(a), int(b)) for a, b in zip(random.integers(8, 257, count), random.integers(64, 1025, count))]
def batches():
    for batch, length in shapes:
        yield random.random((batch, length, 8), "float32"), random.random((batch, 3), "float32")
guard = legroom.Guard(budget=limit, verbose=False)
started = time.monotonic()
model.fit(batches(), verbose=0, callbacks=[guard])
finite = all(bool(numpy.isfinite(numpy.array(w)).all()) for w in model.get_weights())
stopped = len(guard.run.of_kind("does_not_fit"))
print("SHAPES", int(model.optimizer.iterations), stopped, guard.run.way.micro_batches, finite, round(time.monotonic() - started))
"""


def run_shapes(count):
    """Compiled steps of many shapes; the process must live."""
    import guard_worker

    rows = []
    for backend in ("tensorflow", "jax"):
        environment = guard_worker.environment(64, backend) | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = ["nice", "-n", "15", sys.executable, "-c", SHAPES, str(count), "64MiB"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("SHAPES ")]
        if not lines:
            print(done.stderr[-1500:], file=sys.stderr)
        rows.append({"backend": backend, "rc": done.returncode, "found": lines[0] if lines else None})
    return rows


COST = """
import json, statistics, sys, time
import keras, numpy, tensorflow as tf
from legroom.guard.callback import Guard
from legroom.watch.callback import Monitor
width, batch, rounds, steps, limited = (int(value) for value in sys.argv[1:])
layers = keras.layers
def make():
    model = keras.Sequential([keras.Input((width,)), layers.Dense(width, activation="relu"), layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"], jit_compile=False)
    model.make_train_function()
    return model
def batches():
    x, y = numpy.random.rand(batch * 4, width).astype("f"), numpy.random.rand(batch * 4, 1).astype("f")
    return iter(tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(batch, drop_remainder=True).prefetch(2))
def with_callbacks(*callbacks):
    model = make()
    called = keras.callbacks.CallbackList(list(callbacks), model=model)
    called.on_train_begin()
    return model, called, batches(), []
runs = {"plain": with_callbacks(), "guarded": with_callbacks(Guard()), "watched": with_callbacks(Guard(), Monitor(verbose=False))}
for round in range(rounds + 1):
    for model, called, iterator, times in runs.values():
        started = time.perf_counter()
        for number in range(steps):
            called.on_train_batch_begin(number)
            model.train_function(iterator)
            called.on_train_batch_end(number, {})
        if round:
            times.append((time.perf_counter() - started) / steps)
ratios = {name: statistics.median(b / a for a, b in zip(runs["plain"][3], runs[name][3])) for name in ("guarded", "watched")}
found = {name: statistics.median(run[3]) for name, run in runs.items()}
print("COST", json.dumps({**found, "ratio": ratios["guarded"], "ratio_watched": ratios["watched"]}))
"""


def run_cost():
    """Blocks of plain and guarded steps in turn, in one process."""
    import guard_worker

    rows = []
    for name, (width, batch, rounds, steps, limited) in {
        "tiny": (8, 8, 80, 100, 0),
        "tiny, limited allocator": (8, 8, 80, 100, 1),
        "50 ms": (1024, 1280, 40, 10, 0),
        "50 ms, limited allocator": (1024, 1280, 40, 10, 1),
    }.items():
        environment = guard_worker.environment(2000)
        if not limited:
            environment = {key: value for key, value in environment.items() if "BFC" not in key}
        arguments = [str(value) for value in (width, batch, rounds, steps, limited)]
        done = subprocess.run(
            [sys.executable, "-c", COST, *arguments], capture_output=True, text=True, env=environment, check=False
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("COST ")]
        if not lines:
            print(done.stderr[-1500:], file=sys.stderr)
            continue
        rows.append({"name": name, **json.loads(lines[0].split(" ", 1)[1])})
    return rows


def random_table(found):
    lines = [
        "| model | runs | optimizer | precision | runs | OOMs: gradients, update | steps not possible | careful updates | bit-equal runs | worst | allowed | wrong |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    total = wrong = 0
    for entry in found:
        (model, mode, optimizer, dtype, tolerance), rows = entry["group"], entry["rows"]
        ooms = sum(row["ooms"] for row in rows)
        update = sum(row["where"].count("update") for row in rows)
        worst = max([max(row["worst"].values()) for row in rows if row["worst"]] or [0.0])
        equal = sum(not any(row["worst"].values()) for row in rows)
        bad = sum(
            max([*row["worst"].values(), 0.0]) > tolerance
            or row["worst"].get("counters", 0.0) > 0
            or (row["way"] == [1, False] and any(row["worst"].values()))
            for row in rows
        )
        total, wrong = total + ooms, wrong + bad
        gave_up = sum(row["gave_up"] is not None for row in rows)
        careful = sum(row["careful"] for row in rows)
        lines.append(
            f"| {model} | {mode} | {optimizer} | {dtype} | {len(rows)} | {ooms - update}, {update} | {gave_up} | {careful} | "
            f"{equal} | {worst:.0e} | {tolerance:.0e} | {bad} |"
        )
    return [f"{total} out-of-memory errors, {wrong} runs that are not as they should be.", "", *lines]


def exhaustive_table(found):
    lines = [
        "| model | runs | optimizer | amounts tried | failed: gradients, update | different ops failed | wrong | processes that TensorFlow ended |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for key in dict.fromkeys((row["model"], row["mode"], row["optimizer"]) for row in found):
        mine = [row["found"] for row in found if (row["model"], row["mode"], row["optimizer"]) == key]
        rows = [row for row in mine if row]
        phases = [sum(row["phases"].get(name, 0) for row in rows) for name in ("gradients", "update")]
        ops = {op for row in rows for op in row["ops"]}
        tried, wrong = sum(row["tried"] for row in rows), sum(len(row["wrong"]) for row in rows)
        cells = (*key, tried, f"{phases[0]}, {phases[1]}", len(ops), wrong, f"{len(mine) - len(rows)} of {len(mine)}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def shapes_table(found):
    lines = [
        "| framework | shapes run | refused beforehand | micro-batches then | ended | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        done, stopped, count, finite, seconds = row["found"] or ("-", "-", "-", "-", "-")
        ended = "well" if row["rc"] == 0 and finite == "True" else f"exit {row['rc']}"
        lines.append(f"| {row['backend']} | {done} | {stopped} | {count} | {ended} | {seconds} |")
    return lines


def cost_table(found):
    lines = [
        "| step | plain | guarded | more | ratio (median of blocks) | guarded and monitored | more | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        plain, guarded, watched = (1e6 * row[name] for name in ("plain", "guarded", "watched"))
        lines.append(
            f"| {row['name']} | {plain:,.0f} µs | {guarded:,.0f} µs | {guarded - plain:+,.0f} µs | {row['ratio']:.3f} | "
            f"{watched:,.0f} µs | {watched - plain:+,.0f} µs | {row['ratio_watched']:.3f} |"
        )
    return lines


PARTS = {
    "random": (
        lambda small: run_random(20 if small else 200, settings["seconds"] or (120 if small else 3600)),
        random_table,
    ),
    "exhaustive": (lambda small: run_exhaustive(4096 if small else 512), exhaustive_table),
    "shapes": (lambda small: run_shapes(6 if small else 50), shapes_table),
    "cost": (lambda small: run_cost(), cost_table),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"of {', '.join(PARTS)}; all without any")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/guard.md")
    parser.add_argument("--small", action="store_true", help="a sample")
    parser.add_argument("--gpu", action="store_true", help="on this machine's GPU")
    parser.add_argument("--workers", type=int, help="processes at a time")
    parser.add_argument("--seconds", type=int, default=0, help="stop beginning random runs after so long")
    parser.add_argument("--data", type=Path, default=ROOT / "bench" / "data", help="the folder of what was found")
    parser.add_argument("--found", action="store_true", help="run nothing: the tables of what was found before")
    parser.add_argument(
        "--only", default="", help="of the random runs those whose model, way or optimizer has this word"
    )
    options = parser.parse_args()
    if options.gpu:
        os.environ["LEGROOM_GUARD_DEVICE"] = "GPU:0"
    settings["workers"] = options.workers or settings["workers"]
    settings["seconds"] = options.seconds
    settings["only"] = options.only
    for part in options.parts:
        run, table = PARTS[part]
        name = f"{part}_gpu" if options.gpu else part
        path = options.data / f"guard_{name}.json"
        started = time.monotonic()
        found = json.loads(path.read_text()) if options.found else run(options.small)
        path.write_text(json.dumps(found) + "\n")
        lines = table(found)
        print("\n".join(lines), f"\n({name}: {time.monotonic() - started:.0f} s)", flush=True)
        if options.write:
            put("guard.md", name, "\n".join(lines))


if __name__ == "__main__":
    main()
