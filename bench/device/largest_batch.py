"""Whether batches really fit: compiled steps under a memory limit of TensorFlow's allocator, on a machine with a GPU.

    python bench/device/largest_batch.py WANTED.json --out FILE

WANTED is what `bench/largest_batch.py --ask` prints, its "wanted" a list of [model, batch, limit in MiB]; each runs three steps in a
process of its own. A line for each: whether it ran out of memory. With --logs FOLDER, what the allocator wrote then.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def measure(name: str, batch: int, limit: int) -> None:
    import tensorflow as tf

    card = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(card, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])
    sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "src")]
    import zoo

    model, x, y = zoo.setup(name, batch, "float32")
    model.compile(model.optimizer, model.loss, jit_compile=True)
    with tf.device("CPU"):
        data = tf.data.Dataset.from_tensors((x, y * 0)).repeat(3)
    try:
        model.fit(data, epochs=1, steps_per_epoch=3, verbose=0)
    except (tf.errors.ResourceExhaustedError, tf.errors.InternalError) as error:
        kind = "oom" if "memory" in str(error).lower() or "RESOURCE_EXHAUSTED" in str(error) else str(error)[-300:]
        print("ROW " + json.dumps({"fits": False, "why": kind}))
        return
    print("ROW " + json.dumps({"fits": True, "peak": tf.config.experimental.get_memory_info("GPU:0")["peak"]}))


def run(name: str, batch: int, limit: int, logs: str | None = None) -> dict[str, object]:
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "0" if logs else "3"}
    command = [sys.executable, __file__, "--measure", name, str(batch), str(limit)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if logs and (not rows or '"fits": false' in rows[0]):
        pathlib.Path(logs).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(logs) / f"{name}-{batch}.log").write_text(done.stderr[-400_000:])
    found = json.loads(rows[0]) if rows else {"error": done.stderr[-500:]}
    return {"model": name, "batch": batch, "limit": limit} | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="?")
    parser.add_argument("--out")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--logs")
    parser.add_argument("--measure", nargs=3)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], int(options.measure[1]), int(options.measure[2]))
        return
    wanted = json.loads(pathlib.Path(options.wanted).read_text())["wanted"]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, pathlib.Path(options.out).open("w") as rows:
        for row in concurrent.futures.as_completed([pool.submit(run, *one, options.logs) for one in wanted]):
            rows.write(json.dumps(row.result()) + "\n")
            rows.flush()


if __name__ == "__main__":
    main()
