"""Time and memory of an estimate, as a user meets them, into docs/speed.md. `make bench-speed` (about 5 min).

Each case is a `legroom estimate` of a script in a process of its own with an empty cache, then once more with the answer
kept; the RSS is that of the whole process tree, sampled.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import psutil

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = """
import numpy as np, keras
model = keras.applications.{name}(weights=None, classifier_activation=None)
model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True)
model.fit(np.zeros(({batch}, 224, 224, 3), "float32"), np.zeros(({batch},), "int32"), batch_size={batch})
"""
CASES = [("ResNet50", 32, []), ("ResNet50", 128, []), ("ResNet50", 32, ["--max-batch"])]
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


def main() -> None:
    lines = [
        "| backend | model | batch | asked | first time | again (answer kept) | beyond import and build | largest RSS | compiled batches |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for backend in ("tensorflow", "jax"):
        for name, batch, extra in CASES:
            with tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder) / "train.py"
                script.write_text(SCRIPT.format(name=name, batch=batch))
                env = os.environ | {
                    "KERAS_BACKEND": backend,
                    "LEGROOM_CACHE": folder,
                    "TF_CPP_MIN_LOG_LEVEL": "2",
                    "CUDA_VISIBLE_DEVICES": "-1",
                }
                built = IMPORT[backend] + SCRIPT.format(name=name, batch=batch).rpartition("model.fit")[0]
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
    page = ROOT / "docs" / "speed.md"
    head = page.read_text().partition("<!-- table -->")[0] if page.exists() else "# Speed\n\n"
    page.write_text(head + "<!-- table -->\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
