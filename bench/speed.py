"""Time and memory of an estimate, as a user meets them, into docs/speed.md. `make bench-speed` (about 15 min; `--compiled`, `--op`, `--plan`: only that).

Each case is a `legroom estimate` of a script in a process of its own with an empty cache, then once more with the answer
kept; the RSS is that of the whole process tree, sampled.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import psutil

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = """
import numpy as np, keras
model = keras.applications.{name}(weights=None, classifier_activation=None)
model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile={compiled})
model.fit(np.zeros(({batch}, 224, 224, 3), "float32"), np.zeros(({batch},), "int32"), batch_size={batch})
"""
CASES = [("ResNet50", 32, []), ("ResNet50", 128, []), ("ResNet50", 32, ["--max-batch"])]
OP_CASES = [["--gpu", "a100-40gb"], ["--gpu", "t4"], []]  # a ResNet50 that runs op by op; the last on this CPU
PLAN_CASE = ["--gpu", "a100-40gb", "--budget", "8GiB"]
TRIES = 5
IMPORT = {"tensorflow": "import tensorflow, keras", "jax": "import keras, jax"}


def tree_rss(pid: int) -> int:
    """Resident bytes of a process and everything below it."""
    total = 0
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


def run(command: list[str], env: dict[str, str]) -> tuple[float, int, str]:
    """Seconds, the highest RSS of the tree, and what it printed."""
    started, highest = time.monotonic(), 0
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            highest = max(highest, tree_rss(process.pid))
            time.sleep(0.05)
        out.seek(0)
        return time.monotonic() - started, highest, out.read()


def compiled_table() -> str:
    lines = [
        "| backend | model | batch | asked | first time | again (answer kept) | beyond import and build | largest RSS | compiled batches |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for backend in ("tensorflow", "jax"):
        for name, batch, extra in CASES:
            with tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder) / "train.py"
                script.write_text(SCRIPT.format(name=name, batch=batch, compiled=True))
                env = os.environ | {
                    "KERAS_BACKEND": backend,
                    "LEGROOM_CACHE": folder,
                    "TF_CPP_MIN_LOG_LEVEL": "2",
                    "CUDA_VISIBLE_DEVICES": "-1",
                }
                built = (
                    IMPORT[backend] + SCRIPT.format(name=name, batch=batch, compiled=True).rpartition("model.fit")[0]
                )
                base, _, _ = run([sys.executable, "-c", built], env)
                command = [
                    sys.executable,
                    "-m",
                    "legroom",
                    "estimate",
                    str(script),
                    "--gpu",
                    "a100-40gb",
                    "--json",
                    *extra,
                ]
                first, rss, text = run(command, env)
                again, _, _ = run(command, env)
                compilations = len(list(pathlib.Path(folder).glob("answers/*/*.json"))) // 2
            asked = " ".join(extra) or "a100-40gb"
            found = json.loads(text)
            cells = [
                backend,
                name,
                batch,
                asked,
                f"{first:.0f} s",
                f"{again:.1f} s",
                f"{again - base:.1f} s",
                f"{rss / 2**30:.2f} GiB",
                compilations,
            ]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
            print(lines[-1], found["peak_bytes"], found["max_batch"], flush=True)
    return "\n".join(lines)


def spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f}–{max(seconds):.1f})"


def op_table() -> str:
    """A ResNet50 op by op, without the cache; the middle of a few tries, each less the bare import of TensorFlow and Keras beside it."""
    lines = ["| model | batch | asked | in all | beyond import | largest RSS |", "|---|---|---|---|---|---|"]
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    for extra in OP_CASES:
        tries = []
        for _ in range(TRIES):
            with tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder) / "train.py"
                script.write_text(SCRIPT.format(name="ResNet50", batch=32, compiled=False))
                command = [sys.executable, "-m", "legroom", "estimate", str(script), *extra]
                base, _, _ = run([sys.executable, "-c", IMPORT["tensorflow"]], env)
                taken, rss, _ = run(command, env | {"LEGROOM_CACHE": folder})
                tries.append((taken, taken - base, rss))
        in_all, beyond, most = zip(*tries, strict=True)
        asked = " ".join(extra) or "this CPU"
        lines.append(f"| ResNet50 | 32 | {asked} | {spread(in_all)} | {spread(beyond)} | {max(most) / 2**30:.2f} GiB |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def plan_table() -> str:
    """A ResNet50 of batch 128 planned into 8 GiB, with an empty cache."""
    lines = ["| step | in all | largest RSS | plan | largest batch as it is, planned |", "|---|---|---|---|---|"]
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    for compiled in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "train.py"
            script.write_text(SCRIPT.format(name="ResNet50", batch=128, compiled=compiled))
            command = [sys.executable, "-m", "legroom", "plan", str(script), *PLAN_CASE, "--json"]
            seconds, rss, text = run(command, env | {"LEGROOM_CACHE": folder})
        found = json.loads(text)
        names = " + ".join(action["name"] for action in found["plans"][found["chosen"]]["actions"])
        largest = f"{found['max_batch']}, {found['max_batch_planned']}"
        step = "compiled" if compiled else "op by op"
        lines.append(f"| {step} | {seconds:.0f} s | {rss / 2**30:.2f} GiB | {names} | {largest} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def write(marker: str, table: str) -> None:
    """Puts a table after its marker, up to the next one."""
    page = ROOT / "docs" / "speed.md"
    before, _, after = page.read_text().partition(marker)
    rest = after.partition("<!--")
    page.write_text(f"{before}{marker}\n{table}\n" + (f"\n{rest[1]}{rest[2]}" if rest[1] else ""))


def main() -> None:
    tables = {"compiled": ("table", compiled_table), "op": ("op by op", op_table), "plan": ("plan", plan_table)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in tables:
        parser.add_argument(f"--{name}", action="store_true")
    options = vars(parser.parse_args())
    for name in [name for name in tables if options[name]] or list(tables):
        marker, table = tables[name]
        write(f"<!-- {marker} -->", table())


if __name__ == "__main__":
    main()
