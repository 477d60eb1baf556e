"""What each action costs and saves on a real GPU: step times and peaks before and after, on a machine with a GPU.

    python bench/device/plan_times.py --out FILE [MODEL:BATCH:MODE …]

A line for each case and action: the middle of the step times and the peak in use after the first steps. MODE is `graph` or
`xla`. Cases start side by side and take turns at the GPU. `bench/plan_times.py` compares the predictions with them.
"""

import argparse
import concurrent.futures
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ("resnet50:64", "unet:16", "vit:32", "gpt:8", "bert:32")
CASES = tuple(f"{model}:{mode}" for model in MODELS for mode in ("graph", "xla"))
WAYS = ("plain", "slices_4", "blocks_half", "bfloat16")
WARM, ROUNDS, STEPS = 3, 7, 5


def set_up(case: str, way: str) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    """The compiled model with the actions done to it, its batch, and the actions."""
    sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "src")]
    import zoo
    from ways import actions_of

    from legroom.changes.actions import perform

    name, batch, mode = case.split(":")
    model, x, y = zoo.setup(name, int(batch), "float32")
    model.compile(model.optimizer, model.loss, jit_compile=mode == "xla")
    actions = actions_of(model, int(batch), way)
    if actions:
        perform(model, actions)
    return model, x, y * 0, actions


def measure(case: str, way: str, lock: str) -> None:
    import tensorflow as tf

    for card in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(card, True)
    model, x, y, actions = set_up(case, way)
    if way != "plain" and not actions:
        print("ROW " + json.dumps({"refused": "no blocks"}))
        return
    x, y = tf.constant(x), tf.constant(y)
    model.make_train_function()
    step = tf.function(lambda: model.train_step((x, y)), jit_compile=case.endswith("xla"), autograph=False)
    tf.nest.map_structure(lambda value: value.numpy(), step())  # compiles and tunes: for XLA a minute
    with pathlib.Path(lock).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for _ in range(WARM):
            tf.nest.map_structure(lambda value: value.numpy(), step())
        tf.config.experimental.reset_memory_stats("GPU:0")
        times = []
        for _ in range(ROUNDS):
            started = time.monotonic()
            for _ in range(STEPS):
                found = step()
            tf.nest.map_structure(lambda value: value.numpy(), found)
            times.append((time.monotonic() - started) / STEPS)
    peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    from legroom.records.plan import action_to_json

    row = {"seconds": sorted(times)[ROUNDS // 2], "least": min(times), "peak": peak}
    print("ROW " + json.dumps(row | {"actions": [action_to_json(action) for action in actions]}))


def run(case: str, way: str, lock: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", case, way, lock]
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    found = json.loads(rows[0]) if rows else {"error": done.stderr[-600:]}
    return {"case": case, "way": way} | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--out")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--measure", nargs=3)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
        return
    out = pathlib.Path(options.out)
    work = [(case, way) for case in options.cases or CASES for way in WAYS]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, out.open("a") as rows:
        for row in concurrent.futures.as_completed([pool.submit(run, *one, f"{out}.lock") for one in work]):
            rows.write(json.dumps(row.result()) + "\n")
            rows.flush()


if __name__ == "__main__":
    main()
