"""What the monitor costs, and what it finds: `python bench/monitor.py [cost] [scripts]` writes its tables into docs/monitor.md.

Cost: blocks of steps with and without the monitor alternate in one process; the medians of the blocks are compared.
Scripts: all of tests/watch_monitor/scripts, each in a process of its own.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import pages

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "tests/watch_monitor/scripts"
BLOCKS = 40


def per_step(step, count):
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count


def compare(step, count, file):
    """Seconds a step without, and with, the median over alternating blocks."""
    import legroom

    bare, watched = [], []
    with legroom.Watch(file=file, verbose=False) as watch:

        def both():
            step()
            watch.step()

        per_step(both, count)
        for _ in range(BLOCKS):
            bare.append(per_step(step, count))
            watched.append(per_step(both, count))
    return statistics.median(bare), statistics.median(watched)


def fit_times():
    """Seconds a batch of fit() without, and with, in alternating epochs' worth of steps."""
    import keras
    import numpy as np

    import legroom

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.zeros((500, 8), "float32")
    times = {False: [], True: []}
    for turn in range(2 * 12 + 2):
        callbacks = [legroom.Monitor(verbose=False)] if turn % 2 else []
        start = time.perf_counter()
        model.fit(x, x[:, :1], batch_size=1, verbose=0, callbacks=callbacks)
        if turn > 1:
            times[bool(turn % 2)].append((time.perf_counter() - start) / 500)
    return statistics.median(times[False]), statistics.median(times[True])


def cost():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    small = tf.Variable(tf.zeros([8]))

    @tf.function
    def tiny():
        small.assign_add(tf.ones([8]))

    def busy():
        until = time.perf_counter() + 0.05
        while time.perf_counter() < until:
            pass

    rows = ["| step | without | with the monitor | difference |", "|---|--:|--:|--:|"]
    with tempfile.TemporaryDirectory() as folder:
        for name, step, count, file in (
            ("tiny tf.function", tiny, 300, None),
            ("tiny tf.function, samples in a file", tiny, 300, f"{folder}/a.jsonl"),
            ("50 ms (made to last), samples in a file", busy, 3, f"{folder}/b.jsonl"),
        ):
            rows.append(row(name, *compare(step, count, file)))
    rows.append(row("fit(), batches of one", *fit_times()))
    pages.put("monitor.md", "cost", "\n".join(rows))
    return rows


def row(name, bare, watched):
    more = watched - bare
    return f"| {name} | {bare * 1e6:.1f} µs | {watched * 1e6:.1f} µs | {more * 1e6:.1f} µs ({more / bare:.2%}) |"


def run_script(path):
    """What a script is said to be, and what was found in it."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=False)
    took = time.perf_counter() - start
    said = re.match(r'"""(?:leaks|healthy)(?:: (\w+))?\.', path.read_text())
    if done.returncode:
        return None, [{"step": 0, "kind": f"exit {done.returncode}", "text": done.stderr[-200:], "leak": True}], took
    return said[1] if said else None, json.loads(done.stdout.splitlines()[-1])["findings"], took


def scripts():
    rows = ["| script | found | at step | seconds | evidence |", "|---|---|--:|--:|---|"]
    right = {"leak": 0, "healthy": 0}
    for path in sorted([*SCRIPTS.glob("leak_[!v]*.py"), *SCRIPTS.glob("healthy_*.py")]):
        cause, found, took = run_script(path)
        first = found[0] if found else {"step": "", "kind": "nothing", "text": ""}
        group = path.name.partition("_")[0]
        leaks = [one["kind"] for one in found if one["leak"]]
        good = leaks == [cause] if group == "leak" else not leaks
        right[group] += good
        mark = "" if good else " **(wrong)**"
        rows.append(f"| {path.stem} | {first['kind']}{mark} | {first['step']} | {took:.0f} | {first['text']} |")
        sys.stderr.write(rows[-1] + "\n")
    rows += ["", f"Right: {right['leak']} of the leaking scripts, {right['healthy']} of the healthy ones."]
    pages.put("monitor.md", "scripts", "\n".join(rows))
    return rows


if __name__ == "__main__":
    for name in sys.argv[1:] or ["cost", "scripts"]:
        sys.stdout.write("\n".join({"cost": cost, "scripts": scripts}[name]()) + "\n")
