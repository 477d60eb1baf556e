"""Op-by-op predictions against the real allocator on this CPU, and against a real H200: tables for docs/accuracy.md.

    python bench/op_accuracy.py all                all of the below, written to docs/accuracy-op.md (about 45 min)
    python bench/op_accuracy.py cpu [CASE …]       models and loops, graph and eager, under the real BFC (about 15 min)
    python bench/op_accuracy.py fits [CASE …]      does it fit under a limit within 8% of its peak: simulated and real
    python bench/op_accuracy.py gpu [MODEL …]      rows of bench/data/h200_truth.jsonl (mode op) and h200_op.jsonl

A CASE is model:batch:mode (models of zoo.py) or loop::mode (loops of op_cases.py); MODE is graph or eager. Tables go to stdout.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
from dataclasses import replace
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "data"
MIB = 2**20
STEPS = 5  # the first apart
PROCESSES = 2  # no two are alike: threads race, and what was made before the step lies elsewhere
GRAPH = (
    *("mlp:512", "resnet50:8", "gpt:2", "unet:2", "seed3:1", "lstm:8", "vgg16:4", "mobilenetv2:8", "vit:4", "bert:4"),
    *("recommender:256", "wide_dense:64", "volume:2", "sound:8", "autoencoder:8", "both_ways:16", "gru:16"),
    *("tutorial_cnn:8", "super_resolution:2", "odd_unet:2"),
)
EAGER = (
    *("mlp:512", "unet:2", "tutorial_cnn:8", "gpt:1", "lstm:8", "resnet50:4", "vit:2", "bert:4", "recommender:256"),
    "autoencoder:8",
)
LOOPS = ("custom_loop:", "accumulation:", "raw_variables:", "persistent:", "checkpointed:", "gan:")
CPU_CASES = (
    *(f"{case}:graph" for case in GRAPH),
    *(f"{case}:eager" for case in EAGER),
    *(f"{case}:{mode}" for case in LOOPS for mode in ("graph", "eager")),
)
# Quick ones whose real peak is the same from run to run (a small CNN in a graph takes 104 to 123 MiB).
SAMPLE = (
    "volume:2:graph",
    "raw_variables::graph",
    "unet:2:graph",
    "unet:2:eager",
    "persistent::graph",
    "custom_loop::eager",
)
FITS = (
    *("unet:2:graph", "tutorial_cnn:8:graph", "vgg16:4:graph", "autoencoder:8:graph", "sound:8:graph", "bert:4:graph"),
    *("wide_dense:64:graph", "recommender:256:graph", "unet:2:eager", "autoencoder:8:eager"),
)
FACTORS = ((0.94, 1.06), (0.96, 1.08), (0.92, 1.04), (0.97, 1.07))


def make(case: str) -> tuple[Any, Any]:
    """A step and its arguments, and how Legroom captures it."""
    import op_cases
    import zoo

    from legroom.capture.factory import batch_tree
    from legroom.capture.keras_fit import capture_model

    name, batch, mode = case.split(":")
    if name in op_cases.CASES:
        return capture_loop(*op_cases.CASES[name](), mode)
    model, x, y = zoo.setup(name, int(batch), "float32")
    y = y * 0  # a CPU refuses labels that the model has no class for
    made_before(model, x, y)
    captured = with_execution(capture_model(model, batch_tree((x, y))), mode)
    return captured, (lambda a, b: model.train_step((a, b)), (x, y), model)


def made_before(model: Any, x: Any, y: Any) -> None:
    """As the steps here are measured: the optimizer's slots are there, made one by one."""
    model._symbolic_build(data_batch=(x, y))
    model.optimizer.build(model.trainable_variables)


def capture_loop(step: Any, arguments: tuple[Any, ...], mode: str) -> tuple[Any, Any]:
    import tensorflow as tf

    from legroom.capture.tf_step import capture_call

    captured = capture_call(tf.function(step, autograph=False), arguments, {})
    return with_execution(captured, mode), (step, arguments, None)


def with_execution(captured: Any, mode: str) -> Any:
    return replace(captured, step=replace(captured.step, execution=mode))


def measure(case: str) -> None:
    """Run the step for real in this process, whose allocator is the BFC; prints peaks, or how it ran out."""
    import tensorflow as tf

    _, (step, arguments, _) = make(case)
    tensors = [tf.constant(array) for array in arguments]
    if case.endswith("graph"):
        step = tf.function(step, autograph=False)
    peaks = []
    try:
        for _ in range(STEPS):
            tf.config.experimental.reset_memory_stats("CPU:0")
            step(*tensors)
            peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])
    except tf.errors.ResourceExhaustedError:
        print("ROW " + json.dumps({"peaks": peaks, "failed": True}), flush=True)
        return
    print("ROW " + json.dumps({"peaks": peaks, "failed": False}), flush=True)


def truth(case: str, limit_mib: int = 14000) -> dict[str, Any]:
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    env |= {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib), "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, __file__, "--measure", case]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if rows:
        return json.loads(rows[0])
    if done.returncode < 0 or "OOM" in done.stderr or "ResourceExhausted" in done.stderr:
        return {"peaks": [], "failed": True}
    raise RuntimeError(f"{case}: {done.stderr[-2000:]}")


def predict(asked: list[list[Any]]) -> None:
    """Legroom's answers, in this process: [case, limits in MiB] each, then a line with the estimate and who fits."""
    from legroom.front.local_source import LocalSource
    from legroom.front.simulated import Simulated
    from legroom.front.target import choose_card

    for case, limits in asked:
        captured, _ = make(case)
        answers = Simulated(LocalSource(captured), choose_card(None, None))
        found = answers.at(captured.step.batch)
        lowered = answers.lowered_at(captured.step.batch)
        failed = [answers.simulate(lowered, limit * MIB).failure is not None for limit in limits]
        row = {"peak": found.peak_bytes, "low": found.low_bytes, "high": found.high_bytes}
        print("ROW " + json.dumps(row | {"case": case, "seconds": found.seconds, "failed": failed}), flush=True)


def ask(asked: list[list[Any]]) -> dict[str, dict[str, Any]]:
    env = os.environ | {
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    done = subprocess.run(
        [sys.executable, __file__, "--predict", json.dumps(asked)], env=env, capture_output=True, text=True, check=False
    )
    rows = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if len(rows) != len(asked):
        raise RuntimeError(done.stderr[-3000:])
    return {row["case"]: row for row in rows}


def compare_cpu(cases: list[str]) -> list[dict[str, Any]]:
    """Each case measured and predicted. The truth is the middle of the steps after the first of several processes: they differ."""
    compared = []
    for case in cases:
        said = ask([[case, []]])[case]
        peaks = [peak for _ in range(PROCESSES) for peak in truth(case)["peaks"][1:]]
        middle = statistics.median(peaks)
        row = {"case": case, "real": middle, "least": min(peaks), "most": max(peaks), **said}
        row |= {"error": said["peak"] / middle - 1, "covered": said["high"] >= max(peaks)}
        compared.append(row)
        print(f"{case} {row['error']:+.3f}", file=sys.stderr, flush=True)
    return compared


def cpu_table(rows: list[dict[str, Any]]) -> str:
    errors = sorted(abs(row["error"]) for row in rows)
    lines = [
        f"{len(rows)} cases: median error {100 * statistics.median(errors):.1f}%, "
        f"{sum(e <= 0.08 for e in errors)} of {len(errors)} within 8%, worst {100 * errors[-1]:.1f}%; "
        f"high covers {sum(row['covered'] for row in rows)} of {len(rows)}.",
        "",
        "| model or loop | batch | mode | real MiB (least–most) | said MiB | error | high MiB | covers | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        name, batch, mode = row["case"].split(":")
        real = f"{row['real'] / MIB:,.0f} ({row['least'] / MIB:,.0f}–{row['most'] / MIB:,.0f})"
        cells = [name, batch, mode, real, f"{row['peak'] / MIB:,.0f}", f"{100 * row['error']:+.1f}%"]
        cells += [f"{row['high'] / MIB:,.0f}", "yes" if row["covered"] else "**no**", f"{row['seconds']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compare_fits(cases: list[str]) -> str:
    lines = ["| model | mode | limit | of its peak | real | simulated |", "|---|---|---|---|---|---|"]
    agree = 0
    asked: list[list[Any]] = []
    limits: dict[str, list[tuple[float, int]]] = {}
    for i, case in enumerate(cases):
        peak = statistics.median(truth(case)["peaks"][1:])
        limits[case] = [(factor, round(peak * factor / MIB)) for factor in FACTORS[i % len(FACTORS)]]
        asked.append([case, [limit for _, limit in limits[case]]])
    said = ask(asked)
    for case in cases:
        for (factor, limit), simulated in zip(limits[case], said[case]["failed"], strict=True):
            real = truth(case, limit)["failed"]
            agree += real == simulated
            words = ["fails" if failed else "fits" for failed in (real, simulated)]
            name, _, mode = case.split(":")
            lines.append(f"| {name} | {mode} | {limit} MiB | {100 * factor:.0f}% | {words[0]} | {words[1]} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return f"{agree} of {len(lines) - 2} agree.\n\n" + "\n".join(lines)


def gpu_rows() -> list[dict[str, Any]]:
    rows = []
    for line in (DATA / "h200_truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["mode"] == "op":
            rows.append({**row, "mode": "graph", "set": "shared", "allocator": "growth"})
    return rows + [json.loads(line) for line in (DATA / "h200_op.jsonl").read_text().splitlines()]


def predict_gpu(cases: list[list[Any]]) -> None:
    import zoo

    from legroom.capture.factory import batch_tree
    from legroom.capture.keras_fit import capture_model
    from legroom.engines.op.executor import Executor
    from legroom.front.local_source import LocalSource
    from legroom.front.simulated import Simulated
    from legroom.front.target import choose_card

    class Resident(Simulated):
        """The data were put onto the card before."""

        def machine(self, most: int) -> Any:
            return replace(super().machine(most), executor=Executor, drifts=False)

    before, kept = None, {}
    for name, batch, policy, mode, allocator in cases:
        os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = str(allocator == "growth")
        if before != (name, batch, policy, mode):  # else it was traced already, for the other allocator
            model, x, y = zoo.setup(name, batch, policy)
            made_before(model, x, y)
            captured = with_execution(capture_model(model, batch_tree((x, y))), mode)
            before, kept = (name, batch, policy, mode), {}
        answers = Resident(LocalSource(captured), choose_card("h200", None))
        answers.kept = kept
        found = answers.at(batch)
        kept = answers.kept
        row = {"peak": found.peak_bytes, "low": found.low_bytes, "high": found.high_bytes, "seconds": found.seconds}
        print("ROW " + json.dumps(row), flush=True)


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("model", "batch", "policy", "mode", "allocator"))


def compare_gpu(models: list[str], only: str | None = None) -> list[dict[str, Any]]:
    rows = [row for row in gpu_rows() if (not models or row["model"] in models) and only in (None, row["set"])]
    env = os.environ | {
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    keys = sorted(dict.fromkeys(key_of(row) for row in rows))
    said = {}
    command = [sys.executable, __file__, "--predict-gpu", json.dumps(keys)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ROW "):
                said[keys[len(said)]] = json.loads(line[4:])
                print(*keys[len(said) - 1], file=sys.stderr, flush=True)
    compared = []
    for row in rows:
        guess = said[key_of(row)]
        peaks = row.get("peaks", [0, row.get("peak_bytes", 0)])[1:]
        real = statistics.median(peaks)
        compared.append({**row, **guess, "real": real, "error": guess["peak"] / real - 1, "most": max(peaks)})
    return compared


def gpu_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| set | mode | allocator | rows | median error | worst | high covers | widest high ÷ peak |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group in dict.fromkeys((row["set"], row["mode"], row["allocator"]) for row in rows):
        of = [row for row in rows if (row["set"], row["mode"], row["allocator"]) == group]
        errors = [abs(row["error"]) for row in of]
        covers = sum(row["high"] >= row["most"] for row in of)
        widest = max(row["high"] / row["real"] for row in of)
        cells = [*group, len(of), f"{100 * statistics.median(errors):.1f}%", f"{100 * max(errors):.1f}%"]
        lines.append("| " + " | ".join(map(str, [*cells, f"{covers} of {len(of)}", f"{widest:.2f}"])) + " |")
    lines += [
        "",
        "| set | model | batch | policy | mode | allocator | real MiB | said MiB | error | high MiB | covers |",
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = [
            row["set"],
            row["model"],
            row["batch"],
            row["policy"].replace("mixed_", ""),
            row["mode"],
            row["allocator"],
        ]
        cells += [f"{row['real'] / MIB:,.0f}", f"{row['peak'] / MIB:,.0f}", f"{100 * row['error']:+.1f}%"]
        cells += [f"{row['high'] / MIB:,.0f}", "yes" if row["high"] >= row["most"] else "**no**"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def write_page() -> None:
    """docs/accuracy-op.md, from its `<!-- tables -->` on."""
    page = HERE.parent / "docs" / "accuracy-op.md"
    parts = {
        "This CPU's allocator": cpu_table(compare_cpu(list(CPU_CASES))),
        "Fits or fails": compare_fits(list(FITS)),
        "A real H200": gpu_table(compare_gpu([])),
    }
    text = "\n".join(f"## {title}\n\n{table}\n" for title, table in parts.items())
    head = page.read_text().partition("<!-- tables -->")[0]
    page.write_text(f"{head}<!-- tables -->\n{text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["all", "cpu", "fits", "gpu"])
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--measure")
    parser.add_argument("--predict")
    parser.add_argument("--predict-gpu")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    if options.measure:
        measure(options.measure)
    elif options.predict:
        predict(json.loads(options.predict))
    elif options.predict_gpu:
        predict_gpu(json.loads(options.predict_gpu))
    elif options.what == "all":
        write_page()
    elif options.what == "cpu":
        print(cpu_table(compare_cpu(options.cases or list(CPU_CASES))))
    elif options.what == "fits":
        print(compare_fits(options.cases or list(FITS)))
    else:
        print(gpu_table(compare_gpu(options.cases)))


if __name__ == "__main__":
    main()
