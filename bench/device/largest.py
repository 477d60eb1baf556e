"""The largest batch that really trains under a memory limit of TensorFlow's allocator, on a machine with a GPU.

    python bench/device/largest.py WANTED.json --out FILE [--jobs 12] [--logs FOLDER]

WANTED is a list of {"model", "policy", "limit" (MiB), "start", "said", "jit"}; with "jit" compiled by XLA, else op by op. For each the largest is looked for around "start", to 1%, in a process for every
try; what was "said" is run in "again" processes (3) first, and if all of them train the search begins at what it would be 97% of. With "ways": ["keras", "legroom"] the largest by Keras' own accumulation over four batches and
by Legroom's four micro-batches as well. With "true", known from before, it is not looked for again. With "tries", a list of [way, batch], these are run and nothing is looked for. A try gets "patience" seconds (240). A line for every try, and one at the end for every case. Nothing here asks Legroom for a prediction.
"""

import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import subprocess
import sys
import threading
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from largest_on_cpu import SLICES, largest, made

STEPS, AGAIN, PATIENCE = 12, 3, 240.0


def measure(name: str, policy: str, batch: int, limit: int, way: str, jit: bool) -> None:
    import tensorflow as tf

    card = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(card, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])
    try:
        model, x, y = made(name, way, batch, policy, jit)
        with tf.device("CPU"):
            data = tf.data.Dataset.from_tensors((x, y)).repeat()
        model.fit(data, epochs=1, steps_per_epoch=STEPS, verbose=0)
    except (tf.errors.ResourceExhaustedError, tf.errors.InternalError, tf.errors.UnknownError) as error:
        text = str(error)
        ran_out = isinstance(error, tf.errors.ResourceExhaustedError) or "memory" in text.lower()
        print("ROW " + json.dumps({"fits": False, "why": "oom" if ran_out else text[-300:]}))
        return
    print("ROW " + json.dumps({"fits": True, "peak": tf.config.experimental.get_memory_info("GPU:0")["peak"]}))


def run(case: dict[str, Any], batch: int, way: str, logs: str | None) -> dict[str, Any]:
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "0" if logs else "3"}
    asked = [case["model"], case["policy"], str(batch), str(case["limit"]), way, str(int(case.get("jit", False)))]
    command = [sys.executable, __file__, "--measure", *asked]
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=case.get("patience", PATIENCE)
        )
    except subprocess.TimeoutExpired:
        return {"fits": None, "why": "too slow"}
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    found = dict(json.loads(rows[0])) if rows else {"fits": False, "why": f"{done.returncode}: {done.stderr[-400:]}"}
    if logs and found["fits"] is False:
        pathlib.Path(logs).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(logs) / ("-".join(asked) + ".log")).write_text(done.stderr)
    return found


class Book:
    """The lines of all cases, in one file."""

    def __init__(self, path: str) -> None:
        self.file = pathlib.Path(path).open("a")  # noqa: SIM115
        self.held = threading.Lock()

    def write(self, **row: Any) -> None:
        with self.held:
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()


class TooSlow(Exception):
    """A try did not come to its end: whether it fits is not known."""


def find(case: dict[str, Any], book: Book, logs: str | None) -> None:
    about = {name: case[name] for name in ("model", "policy", "limit", "jit") if name in case}

    def fits(batch: int, way: str = "plain") -> bool:
        found = run(case, batch, way, logs)
        book.write(**about, way=way, batch=batch, **found)
        if found["fits"] is None:
            raise TooSlow
        return bool(found["fits"])

    if "tries" in case:
        for way, batch in case["tries"]:
            with contextlib.suppress(TooSlow):
                fits(batch, way)
        return
    said = case.get("said")
    trained = None if said is None else [fits(said) for _ in range(case.get("again", AGAIN))]
    if case.get("true"):
        true = case["true"]
    elif said is not None and trained and all(trained):
        true = largest(fits, math.floor(said / 0.97) + 1, 1.01, low=said)
    else:
        true = largest(fits, case["start"], 1.01)
    row = {"said": said, "trained": trained, "true": true}
    if "keras" in case.get("ways", ()):
        row["keras"] = SLICES * largest(lambda batch: fits(batch, "keras"), row["true"], 1.03)
    if "legroom" in case.get("ways", ()):
        row["legroom"] = largest(lambda batch: fits(batch, "legroom"), SLICES * (row["true"] - 1), 1.03)
    book.write(**about, **row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="?")
    parser.add_argument("--out")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--logs", help="what TensorFlow wrote where it ran out of memory")
    parser.add_argument("--measure", nargs=6)
    options = parser.parse_args()
    if options.measure:
        name, policy, batch, limit, way, jit = options.measure
        measure(name, policy, int(batch), int(limit), way, jit == "1")
        return
    cases = json.loads(pathlib.Path(options.wanted).read_text())
    book = Book(options.out)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(find, case, book, options.logs) for case in cases]):
            with contextlib.suppress(TooSlow):
                done.result()


if __name__ == "__main__":
    main()
