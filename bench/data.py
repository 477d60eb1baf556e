"""Data on demand, measured: `python bench/data.py [memory] [copies] [ram] [speed] [shuffle] [kills]` writes its tables into docs/data.md.

Every run is a process of its own (bench/data_worker.py). Memory: ten times the budget, twenty epochs of `fit`. Speed: ways take
turns in one process, medians of epochs.
"""

import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import pages
from ram_scripts import SCRIPTS

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent / "tests/stream"
LEGROOM = (sys.executable, "-m", "legroom")
MIB = 2**20
BUDGET, SAMPLE, BATCH, EPOCHS = 32 * MIB, 64 * 64 * 3, 64, 20
KINDS = ("npy", "hdf5", "hdf5-gzip", "zarr", "parquet", "tfrecord", "images")
RATES = (
    ("empty", "an empty loop", 10000, 3),
    ("small", "`fit`, a tiny model, 63 batches an epoch", 4000, 10),
    ("small", "`fit`, a tiny model, 313 batches an epoch", 20000, 4),
    ("cnn", "`fit`, a CNN", 2000, 3),
)


def run(command, backend="tensorflow"):
    env = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, *map(str, command)], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def worker(what, **arguments):
    return run([HERE / "data_worker.py", what, json.dumps(arguments)])


def table(name, head, lines):
    rows = [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(map(str, line))} |" for line in lines),
    ]
    print(*rows, sep="\n", flush=True)
    pages.put("data.md", name, "\n".join(rows))


def memory():
    count, lines = 10 * BUDGET // SAMPLE, []
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            worker("write", kind=kind, folder=folder, count=count)
            found = worker("memory", kind=kind, folder=folder, count=count, batch=BATCH, budget=BUDGET, epochs=EPOCHS)
        grown, resident = found["peak"] - found["base"], found["resident"]
        later = max(resident[1:]) - resident[0]
        right = "yes" if grown <= 1.1 * BUDGET else "**no**"
        lines.append((kind, f"{grown / MIB:.1f}", f"{later / MIB:+.1f}", right, f"{found['seconds'] / EPOCHS:.1f}"))
        print(lines[-1], flush=True)
    table(
        "memory",
        (
            "source",
            "peak above base, MiB",
            "RSS from the first to any later epoch, MiB",
            "within 35.2 MiB",
            "seconds an epoch",
        ),
        lines,
    )


def copies():
    lines = []
    for backend in ("tensorflow", "jax"):
        for dtype in ("float32", "float64", "uint8"):
            size = 300
            plain, streamed = (
                run([TESTS / "unmodified_worker.py", how, dtype, size], backend) for how in ("plain", "fit")
            )
            same = "yes" if plain["weights"] == streamed["weights"] else "**no**"
            saved = (plain["grown"] - streamed["grown"]) / plain["array"]
            grown = [f"{found['grown'] / MIB:.0f}" for found in (plain, streamed)]
            lines.append((backend, dtype, *grown, f"{saved:.2f}×", same))
    table(
        "copies",
        ("backend", "300 MiB of", "`fit` adds, MiB", "with `ram=`, MiB", "less by, of the array", "same weights"),
        lines,
    )


def speed():
    lines = []
    for step, name, count, rounds in RATES:
        found = worker("speed", step=step, batch=BATCH, count=count, rounds=rounds)
        rates = {way: count / seconds for way, seconds in found.items()}
        ours = rates["legroom.stream, shuffled"]
        shares = [
            f"{100 * ours / rates[way]:.0f}%"
            for way in ("from_tensor_slices, shuffled", "from_tensor_slices", "grain, shuffled")
        ]
        lines.append((name, f"{ours:,.0f}", *shares))
    head = (
        "step",
        "samples a second, shuffled",
        "of from_tensor_slices().shuffle()",
        "of from_tensor_slices, not shuffled",
        "of Grain alone",
    )
    table("speed", head, lines)
    slow = []
    for read, step in ((0.02, 0.02), (0.01, 0.03), (0.03, 0.01)):
        found = worker("slow_disk", read_seconds=read, step_seconds=step, batches=60)
        each = found["seconds"] / found["batches"]
        slow.append(
            (
                f"{read * 1000:.0f} ms",
                f"{step * 1000:.0f} ms",
                f"{each * 1000:.1f} ms",
                f"{(read + step) * 1000:.0f} ms",
            )
        )
    table("disk", ("reading a batch", "the step", "measured, both", "without overlap"), slow)


def ram():
    """Real peaks of scripts against what `legroom plan --ram` says of them, as they are and with the action that it proposes."""
    lines = []
    for name, (script, action, changed) in SCRIPTS.items():
        with tempfile.TemporaryDirectory() as folder:
            path, other = pathlib.Path(folder) / "train.py", pathlib.Path(folder) / "changed.py"
            path.write_text(script)
            other.write_text(changed or script)
            view = json.loads(legroom("plan", path, "--ram", "64MiB", "--no-max-batch", "--json", codes=(0, 1)))["host"]
            found = next(one for one in view["actions"] if one["name"] == action)
            plain = peak_of([sys.executable, path], folder)
            command = [sys.executable, other] if changed else [*LEGROOM, "run", "--ram", "64MiB", path]
            streamed = peak_of(command, folder)
        sizes = [f"{size / MIB:.0f}" for size in (plain, view["peak_bytes"], streamed, found["peak_bytes"])]
        off = max(
            abs(said - real) / real for said, real in ((view["peak_bytes"], plain), (found["peak_bytes"], streamed))
        )
        lines.append((name, sizes[0], sizes[1], action, sizes[2], sizes[3], f"{off:.0%}"))
        print(lines[-1], flush=True)
    head = ("script", "peak, MiB", "said", "action", "peak then, MiB", "said", "off by at most")
    table("ram", head, lines)


def legroom(*arguments, codes=(0,)):
    env = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PEAK_FILE": os.devnull}
    done = subprocess.run([*LEGROOM, *map(str, arguments)], env=env, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        sys.exit(done.stderr[-3000:])
    return done.stdout


def peak_of(command, folder):
    """The highest RSS of the process that trains, which writes it down when it ends."""
    file = pathlib.Path(folder) / "peak"
    file.unlink(missing_ok=True)
    env = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PEAK_FILE": str(file)}
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return max(int(line) for line in file.read_text().split()) * 1024


def shuffle():
    import numpy as np
    from scipy import stats

    from legroom.data.order import Order

    lines = []
    for length, epochs, blocks in ((20, 20000, 20), (1000, 2000, 50), (300_000, 20, 64), (3_000_000, 4, 64)):
        order = Order(length, 0, True)
        counts = np.zeros((blocks, blocks))
        whole = True
        for epoch in range(epochs):
            samples = order.indices(epoch, 0, length)
            whole = whole and len(np.unique(samples)) == length
            np.add.at(counts, (np.arange(length) * blocks // length, samples * blocks // length), 1)
        lines.append(
            (f"{length:,}", f"{epochs:,}", "yes" if whole else "**no**", f"{stats.chi2_contingency(counts).pvalue:.2f}")
        )
    table("shuffle", ("samples", "epochs", "every sample once", "p of the chi-square test"), lines)


def kills():
    sys.path.insert(0, str(TESTS))
    import test_stream_kills

    chance, wrong = random.Random().randrange(10**6), 0
    with tempfile.TemporaryDirectory() as folder:
        used = test_stream_kills.killed(pathlib.Path(folder), 20, chance)
    counts = collections.Counter((epoch, number) for epoch, numbers in used for number in numbers)
    wrong = sum(counts[epoch, number] != 1 for epoch in (0, 1) for number in range(test_stream_kills.COUNT))
    table(
        "kills", ("kills", "samples of two epochs", "not used exactly once"), [(20, 2 * test_stream_kills.COUNT, wrong)]
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or ("memory", "copies", "ram", "speed", "shuffle", "kills"):
        globals()[name]()
