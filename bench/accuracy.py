"""Predictions against a real H200: every row of `bench/data/`, into docs/accuracy.md. `make bench-accuracy` (about 25 min).

    python bench/accuracy.py [--sample] [--no-write] [model …]

Predictions run as a user's would, in one process a backend, for the card that was measured. Cached answers are used.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "bench" / "data"
MIB = 2**20
SETS = {"h200_truth.jsonl": "shared", "h200_held_out.jsonl": "held out", "h200_unseen.jsonl": "unseen"}
SAMPLE = ("mlp", "lstm", "autoencoder", "sound")


def rows() -> list[dict[str, Any]]:
    """All measured rows of compiled steps."""
    found = []
    for name, group in SETS.items():
        lines = (DATA / name).read_text().splitlines()
        found += [json.loads(line) | {"set": group} for line in lines]
    return [row for row in found if row["mode"] == "xla"]


def predict(backend: str, cases: list[tuple[str, int, str]]) -> None:
    """In a process of its own, for one backend: a JSON line for each case."""
    import zoo

    import legroom

    for name, batch, policy in cases:
        model, x, y = zoo.setup(name, batch, policy)
        if backend == "tensorflow":  # as it was measured: before the first step, in a pool that grows
            model.optimizer.build(model.trainable_variables)
        estimate = legroom.estimate(model, (x, y), gpu="h200", engine="xla")
        parts = {"peak_bytes": estimate.peak_bytes, "low_bytes": estimate.low_bytes, "high_bytes": estimate.high_bytes}
        parts |= {"program_bytes": estimate.program_bytes, "seconds": round(estimate.seconds, 1)}
        parts |= {"breakdown": estimate.breakdown, "curve": max(p.held_bytes for p in estimate.curve)}
        print(
            "ROW " + json.dumps({"backend": backend, "model": name, "batch": batch, "policy": policy} | parts),
            flush=True,
        )


def ask(backend: str, cases: list[tuple[str, int, str]]) -> list[dict[str, Any]]:
    env = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    env |= {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    command = [sys.executable, __file__, "--predict", backend, json.dumps(cases)]
    found = []
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ROW "):
                found.append(json.loads(line[4:]))
                print(
                    f"{backend} {found[-1]['model']} {found[-1]['batch']} {found[-1]['policy']}",
                    file=sys.stderr,
                    flush=True,
                )
    return found


def compare(row: dict[str, Any], guess: dict[str, Any]) -> dict[str, Any]:
    """A measured row beside its prediction. JAX rows are held against the compiler's total, TensorFlow's against the peak."""
    truth = row.get("compiled_total_bytes") if row["backend"] == "jax" else row["peak_bytes"]
    said = guess["peak_bytes"]
    peak = row.get("peak_bytes", truth)
    return {
        **{name: row[name] for name in ("set", "backend", "model", "batch", "policy")},
        "truth": truth,
        "said": said,
        "error": said / truth - 1,
        "off": said - truth,
        "high": guess["high_bytes"],
        "low": guess["low_bytes"],
        "covered": guess["high_bytes"] >= peak,
        "wide": guess["high_bytes"] > 1.12 * said + 64 * MIB,
        "curve_gap": 1 - guess["curve"] / guess["program_bytes"],
    }


def table(compared: list[dict[str, Any]]) -> str:
    lines = [
        "| set | backend | model | batch | policy | real MiB | said MiB | error | high MiB | covers | curve |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in compared:
        cells = [row["set"], row["backend"], row["model"], row["batch"], row["policy"].replace("mixed_", "")]
        cells += [f"{row['truth'] / MIB:,.0f}", f"{row['said'] / MIB:,.0f}", f"{100 * row['error']:+.1f}%"]
        cells += [f"{row['high'] / MIB:,.0f}", "yes" if row["covered"] else "**no**", f"{-100 * row['curve_gap']:.2f}%"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def summary(compared: list[dict[str, Any]]) -> str:
    lines = [
        "| set | backend | rows | median error | worst error (past 64 MiB) | high covers | high too wide |",
        "|---|---|---|---|---|---|---|",
    ]
    for group in SETS.values():
        for backend in ("jax", "tensorflow"):
            of = [row for row in compared if row["set"] == group and row["backend"] == backend]
            if not of:
                continue
            large = [abs(row["error"]) for row in of if abs(row["off"]) > 64 * MIB] or [0.0]
            cells = [
                group,
                backend,
                len(of),
                f"{100 * statistics.median(abs(row['error']) for row in of):.2f}%",
                f"{100 * max(large):.1f}%",
            ]
            cells += [f"{sum(row['covered'] for row in of)} of {len(of)}", sum(row["wide"] for row in of)]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", nargs=2)
    parser.add_argument("--sample", action="store_true", help="a few quick models only")
    parser.add_argument("--no-write", action="store_true", help="print, and leave docs/accuracy.md alone")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    if options.predict:
        predict(options.predict[0], json.loads(options.predict[1]))
        return
    wanted = options.models or (SAMPLE if options.sample else None)
    measured = [row for row in rows() if wanted is None or row["model"] in wanted]
    compared = []
    for backend in ("jax", "tensorflow"):
        of = [row for row in measured if row["backend"] == backend]
        guesses = {
            (g["model"], g["batch"], g["policy"]): g
            for g in ask(backend, [(r["model"], r["batch"], r["policy"]) for r in of])
        }
        compared += [
            compare(row, guesses[key]) for row in of if (key := (row["model"], row["batch"], row["policy"])) in guesses
        ]
    text = summary(compared) + "\n\n" + table(compared) + "\n"
    print(text)
    print(f"curve against the compiler's total: worst gap {100 * max(row['curve_gap'] for row in compared):.2f}%")
    if wanted is None and not options.no_write:
        page = ROOT / "docs" / "accuracy.md"
        head = page.read_text().partition("<!-- table -->")[0] if page.exists() else "# Accuracy\n\n"
        page.write_text(head + "<!-- table -->\n" + text)


if __name__ == "__main__":
    main()
