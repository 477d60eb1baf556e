"""Planned steps against whole ones: 40 generated models, every action, every way of running them, single and double precision.

    python bench/gradients.py [MODE:PRECISION[:OPTIMIZER] …] [--jobs 2] [--resume] [--write]

Compares the gradients that the optimizer gets in the first step and, for every fourth model, all that 20 steps of `fit` leave
behind. A process for each model and framework, hours of one core in all; the rows are in data/gradients.jsonl, which a run
of single modes brings up to date. With --write the table goes to docs/accuracy-plan.md.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from pages import put

HERE = pathlib.Path(__file__).resolve().parent
ROWS = HERE / "data" / "gradients.jsonl"
MODELS = 40

FIRST = "eager:float64"  # the others ask it what is zero but for rounding
RUNS = (
    *(FIRST, "graph:float64", "xla:float64", "jax mended:float64", "jax:float64"),
    *("eager:float32", "graph:float32", "xla:float32", "jax:float32", "graph:float32:Adam"),
)
NAMES = {
    "graph": "TensorFlow graph",
    "eager": "TensorFlow eager",
    "xla": "TensorFlow XLA",
    "jax": "JAX",
    "jax mended": "JAX, means in float64",
}
ACTIONS = {"microbatch": "micro-batches", "remat": "recomputation", "both": "both"}
OPTIMIZERS = {"float32": "SGD", "float64": "Adam"}
GRADIENTS = {"float32": 1e-3, "float64": 1e-11}
STATE = {"float32": 1e-4, "float64": 1e-8}


def recipes() -> list[dict[str, Any]]:
    sys.path.insert(0, str(HERE))
    import model_recipes

    return [recipe.plain() for recipe in model_recipes.generated()]


def run(
    given: Sequence[dict[str, Any]],
    folder: pathlib.Path,
    *names: str,
    keep: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """The rows of these models in these modes and precisions, all of one backend, from a process of its own; kept as they come."""
    rows = []
    backend = "jax" if names[0].startswith("jax") else "tensorflow"
    env = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    # LLVM's optimisations take most of the time and come after all of XLA's own
    env |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    command = [sys.executable, str(HERE / "gradient_runs.py"), str(folder), *names]
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(given))
        child.stdin.close()
        for line in child.stdout:
            if line.startswith("ROW "):
                rows.append(json.loads(line[4:]))
                keep(rows[-1])
        if child.wait():
            said.seek(0)
            raise RuntimeError(f"{names}: {said.read()[-2000:]}")
    return rows


def wrong(row: dict[str, Any]) -> str:
    """What is wrong with a comparison; nothing where it holds or was refused."""
    if "refused" in row:
        return ""
    if "failed" in row:
        return str(row["failed"])
    limits = {"gradients": GRADIENTS[row["dtype"]], "state": STATE[row["dtype"]], "logs": STATE[row["dtype"]]}
    if (row["dtype"], row["optimizer"]) == ("float32", "Adam"):
        limits = {"gradients": GRADIENTS["float32"]}
    found = [f"{name} {row[name]:.1e}" for name, limit in limits.items() if not row[name] <= limit]
    if row["iterations"] != [row["steps"]] * 2:
        found.append(f"iterations {row['iterations']}")
    if not row["seeds"]:
        found.append("other seeds")
    return ", ".join(found)


def worst(rows: Iterable[dict[str, Any]], name: str) -> str:
    values = [row[name] for row in rows]
    return f"{max(values):.0e}" if values else "–"


def line_of(name: str, action: str, rows: list[dict[str, Any]]) -> str:
    mode, dtype, *_ = name.split(":")
    here = [row for row in rows if row["action"] == action]
    done = [row for row in here if "gradients" in row]
    long = [row for row in done if row["steps"] > 1]
    cells = [NAMES[mode], dtype, rows[0]["optimizer"], ACTIONS[action], str(len(done)), worst(done, "gradients")]
    cells += [f"{worst(long, 'state')} ({len(long)})", str(sum(bool(wrong(row)) for row in here))]
    return "| " + " | ".join([*cells, str(sum("refused" in row for row in here))]) + " |"


def table(rows: list[dict[str, Any]]) -> str:
    by_run = {name: [row for row in rows if row["run"] == name] for name in RUNS}
    lines = [
        "| run by | precision | optimizer | action | models | gradients | after 20 steps (models) | wrong | refused |"
    ]
    lines.append("|" + "---|" * 9)
    for name, found in by_run.items():
        lines += [line_of(name, action, found) for action in ACTIONS if found]
    refused: dict[str, int] = {}
    for row in rows:
        if "refused" in row:
            text = f"{NAMES[row['mode']]}: {row['refused'].splitlines()[0]}"
            refused[text] = refused.get(text, 0) + 1
    lines += ["", *(f"Refused {count} times: {text}." for text, count in refused.items())]
    counts = {name: len({row["recipe"] for row in found}) for name, found in by_run.items()}
    partly = [f"{name} ({count})" for name, count in counts.items() if count < MODELS and not name.endswith("Adam")]
    lines += ["", f"Not run in full yet (models so far): {', '.join(partly)}."] if partly else []
    lines += ["", rounded(by_run["jax:float64"])] if by_run["jax:float64"] else []
    return "\n".join(lines) + "\n"


def rounded(rows: list[dict[str, Any]]) -> str:
    """How far Keras' own steps on JAX are from TensorFlow's gradients in double precision, planned or not."""
    known = [row for row in rows if "plain_off" in row]
    off = [row for row in known if row["gradients"] > GRADIENTS["float64"]]
    already = sum(row["plain_off"] > GRADIENTS["float64"] for row in off)
    return (
        f"On JAX in float64 {len(off)} of {len(known)} comparisons of models without random layers are above 1e-11; in {already} of "
        f"them the plain step itself is off by more than that. The furthest from the right gradients: plain {worst(known, 'plain_off')}, "
        f"planned {worst(known, 'planned_off')}."
    )


class Rows:
    """The rows of the file, brought up to date as new ones come."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path, self.lock = path, threading.Lock()
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.rows = {self.key(row): row for row in found}

    @staticmethod
    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["run"], row["recipe"], row["action"]

    def keep(self, row: dict[str, Any]) -> None:
        with self.lock:
            self.rows[self.key(row)] = row
            self.path.write_text("".join(json.dumps(kept) + "\n" for kept in self.rows.values()))
        if what := wrong(row):
            print(f"{row['run']} {row['recipe']} {row['action']}: {what}", flush=True)

    def has(self, name: str, recipe: int) -> bool:
        return all((name, recipe, action) in self.rows for action in ACTIONS)


def named(row: dict[str, Any]) -> dict[str, Any]:
    name = f"{row['mode']}:{row['dtype']}"
    return {"run": name if name in RUNS and row["optimizer"] == OPTIMIZERS[row["dtype"]] else f"{name}:Adam", **row}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help=f"of {', '.join(RUNS)}; all of them if none is named")
    parser.add_argument("--write", action="store_true", help="write the table to docs/accuracy-plan.md")
    parser.add_argument("--resume", action="store_true", help="only what the file does not have")
    parser.add_argument("--jobs", type=int, default=2, help="models at a time")
    parser.add_argument("--rows", type=pathlib.Path, default=ROWS, help="the file")
    options = parser.parse_args()
    chosen = options.runs or RUNS
    rows = Rows(options.rows)

    def one(recipe: dict[str, Any]) -> None:
        missing = [name for name in chosen if not (options.resume and rows.has(name, recipe["number"]))]
        if recipe["number"] % 4:  # another optimizer is of interest for what twenty steps leave behind
            missing = [name for name in missing if name.count(":") == 1]
        if not missing:
            return
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            others = [name for name in missing if not name.startswith("jax") and name != FIRST]
            run([recipe], pathlib.Path(folder), FIRST, *others, keep=lambda row: rows.keep(named(row)))
            if jax := [name for name in missing if name.startswith("jax")]:
                run([recipe], pathlib.Path(folder), *jax, keep=lambda row: rows.keep(named(row)))
        print(f"model {recipe['number']}: {time.monotonic() - started:.0f} s", flush=True)

    if options.jobs:
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(one, recipes()))
    kept = list(rows.rows.values())
    print(table(kept))
    if options.write:
        put("accuracy-plan.md", "gradients", table(kept))


if __name__ == "__main__":
    main()
