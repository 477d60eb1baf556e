"""Scripts killed at random times under `legroom run`: `python bench/run.py --write` puts the table into docs/run.md.

For each kind of data, with and without a seed, the script runs once undisturbed and then killed (`kill -9`) a few times. Its weights
count how often each sample was used; where it has a seed, its final loss and weights must be those of the undisturbed run.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import psutil
from pages import put

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE / "run_script.py"
CASES = (  # source, framework, seed, fits
    ("arrays", "tensorflow", None, 1),
    ("arrays", "tensorflow", 3, 1),
    ("ordered", "tensorflow", 3, 1),
    ("tfdata", "tensorflow", 3, 1),
    ("tfdata", "tensorflow", None, 1),
    ("generator", "tensorflow", 3, 1),
    ("pydataset", "tensorflow", 3, 1),
    ("arrays", "jax", 3, 1),
    ("ordered", "jax", 3, 1),
    ("arrays", "tensorflow", 3, 2),
    ("stream", "tensorflow", 3, 1),
    ("stream", "jax", 3, 1),
)


def environment(framework):
    return os.environ | {
        "KERAS_BACKEND": framework,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "JAX_PLATFORMS": "cpu",
    }


def arguments_of(case, slow):
    source, _, seed, fits = case
    return [source, *(["--seed", str(seed)] if seed is not None else []), "--slow", str(slow), "--fits", str(fits)]


def result_of(text):
    lines = [line.split()[1:5] for line in text.splitlines() if line.startswith("RESULT ")]
    return [float(value) for value in lines[-1]] if lines else None


def killed(case, kills, draw, slow, every):
    """One run that is killed so often; what it printed and how often it was really killed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "legroom",
            "run",
            "--restarts",
            "50",
            "--checkpoint-every",
            every,
            "--json",
            str(SCRIPT),
        ]
        process = subprocess.Popen(
            [*command, *arguments_of(case, slow)], cwd=folder, env=environment(case[1]),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        said = []
        reader = threading.Thread(target=lambda: said.append(process.communicate()))
        reader.start()
        done = 0
        while process.poll() is None and done < kills:
            time.sleep(draw.uniform(4, 14))
            try:
                for child in psutil.Process(process.pid).children():
                    child.send_signal(signal.SIGKILL)
                    done += 1
            except psutil.Error:
                break
        reader.join()
        out, err = said[0]
        view = json.loads(out) if out else {"restarts": None}
        return result_of(err), done, view["restarts"], process.returncode, err


def compare(case, kills, seed):
    plain = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments_of(case, 0)],
        capture_output=True,
        text=True,
        env=environment(case[1]),
        check=False,
    )
    right = result_of(plain.stdout)
    found, done, restarts, code, err = killed(case, kills, random.Random(seed), 0.04, "0.5s")
    row = {"case": list(case), "right": right, "found": found, "kills": done, "restarts": restarts, "code": code}
    if found is None or right is None:
        print(err[-2000:], plain.stderr[-500:], file=sys.stderr)
    return row


def is_right(row):
    """Every sample once in each epoch; with a seed, the same loss to 1e-4 and as many updates."""
    right, found = row["right"], row["found"]
    if not found or not right or row["code"] or found[0] or found[3] != right[3]:
        return False
    return row["case"][2] is None or abs(found[1] - right[1]) <= 1e-4 * abs(right[1])


def table(rows):
    total = sum(row["kills"] for row in rows)
    lines = [
        f"{total} kills in {len(rows)} runs; {sum(map(is_right, rows))} runs ended as without them.",
        "",
        "| data | framework | seed | trainings | kills | samples not used once an epoch | loss: undisturbed, killed | weights | as without kills |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        (source, framework, seed, fits), right, found = row["case"], row["right"], row["found"]
        if not found or not right:
            lines.append(
                f"| {source} | {framework} | {seed} | {2 * fits} | {row['kills']} | | | | **no** (exit {row['code']}) |"
            )
            continue
        weights = "bit-equal" if found[2] == right[2] else f"{abs(found[2] - right[2]) / right[2]:.0e} apart"
        if seed is None:
            weights = "no seed"
        lines.append(
            f"| {source} | {framework} | {'no' if seed is None else 'yes'} | {2 * fits} | {row['kills']} | {found[0]:.0f} | "
            f"{right[1]:.6g}, {found[1]:.6g} | {weights} | {'yes' if is_right(row) else '**no**'} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", help="only these")
    parser.add_argument("--kills", type=int, default=3, help="in each run")
    parser.add_argument("--seed", type=int, default=0, help="of the times")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = []
    for number, case in enumerate(CASES):
        if not options.sources or case[0] in options.sources:
            rows.append(compare(case, options.kills, options.seed + number))
            print(table(rows).splitlines()[-1], flush=True)
    print(table(rows))
    if options.write:
        put("run.md", "kills", table(rows))


if __name__ == "__main__":
    main()
