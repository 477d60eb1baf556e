"""Runs each way of running out of memory and writes down what it printed, with what is known about it beforehand.

    .venv/bin/python tests/explain/make_logs/record.py [--reuse] [NAME…]

With --reuse only the manifest is written again.

The expected numbers come from the script (shapes), the limit that was set, and plain sums over the dump: not from Legroom's readers.
"""

import json
import os
import re
import subprocess
import sys
from decimal import Decimal
from math import prod
from pathlib import Path

HERE = Path(__file__).parent
LOGS = HERE.parents[1] / "data" / "logs"
MANIFEST = LOGS / "manifest.json"
MIB = 1024 * 1024
CASES = {
    # name: (program, cause, limit of TensorFlow's allocator in MB, ulimit -v in KB, what the log must hold)
    "eager_activations": ("tensorflow", "batch_or_activations", 600, None),
    "fit_batch": ("tensorflow", "batch_or_activations", 500, None),
    "fit_attention": ("tensorflow", "batch_or_activations", 900, None),
    "custom_step": ("tensorflow", "batch_or_activations", 300, None),
    "recovers_then_fails": ("tensorflow", "batch_or_activations", 1000, None),
    "xla_step": ("tensorflow", "batch_or_activations", 600, None),
    "predict_batch": ("tensorflow", "batch_or_activations", 500, None),
    "lstm_batch": ("tensorflow", "batch_or_activations", 250, None),
    "eager_double": ("tensorflow", "batch_or_activations", 700, None),
    "validation_batch": ("tensorflow", "batch_or_activations", 400, None),
    "plain_training": ("tensorflow", "unknown", None, None),
    "wrong_shape": ("tensorflow", "unknown", None, None),
    "warned_training": ("tensorflow", "not_an_error", None, None),
    "huge_eager": ("tensorflow", "tensor_too_large", 1000, None),
    "huge_distances": ("tensorflow", "tensor_too_large", 1000, None),
    "dense_weights": ("tensorflow", "weights_or_optimizer_state", 800, None),
    "adam_slots": ("tensorflow", "weights_or_optimizer_state", 700, None),
    "embedding_weights": ("tensorflow", "weights_or_optimizer_state", 1500, None),
    "torn_regular": ("tensorflow", "fragmentation", 820, None),
    "torn_mixed": ("tensorflow", "fragmentation", 900, None),
    "kept_losses": ("tensorflow", "leak_or_growth", 600, None),
    "kept_predictions": ("tensorflow", "leak_or_growth", 150, None),
    "models_in_a_loop": ("tensorflow", "leak_or_growth", 500, None),
    "retraced": ("tensorflow", "retracing", 300, None),
    "retraced_shapes": ("tensorflow", "retracing", 400, None),
    "retraced_only": ("tensorflow", "retracing", None, None),
    "map_too_large": ("tensorflow", "host_ram_dataset", 1000, None),
    "shuffled_batches": ("tensorflow", "host_ram_dataset", 1000, None),
    "generator_error": ("tensorflow", "host_ram_dataset", 1000, None),
    "large_allocation": ("tensorflow", "not_an_error", None, None),
    "tensor_proto": ("tensorflow", "graph_constant_too_large", None, None),
    "graph_def": ("tensorflow", "graph_constant_too_large", None, None),
    "numpy_images": ("elsewhere", "host_ram_dataset", None, 8_000_000),
    "numpy_stack": ("elsewhere", "host_ram_dataset", None, 4_000_000),
    "numpy_square": ("elsewhere", "host_ram_other", None, 8_000_000),
    "plain_memory_error": ("elsewhere", "host_ram_other", None, 2_000_000),
    "bad_alloc": ("elsewhere", "host_ram_other", None, 4_000_000),
    "jax_array": ("elsewhere", "tensor_too_large", None, None),
    "jax_step": ("elsewhere", "batch_or_activations", None, 12_000_000),
    "jax_pairs": ("elsewhere", "tensor_too_large", None, None),
}


def run(name):
    program, _, limit, virtual = CASES[name]
    command = [sys.executable, str(HERE / f"run_out_{program}.py"), name]
    if name in ("large_allocation", "warned_training"):
        free = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) * 1024
        command.append(str(int(0.12 * free / (4 * MIB))))
    env = os.environ | {
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "CUDA_VISIBLE_DEVICES": "-1",
        "KERAS_BACKEND": "tensorflow",
        "JAX_PLATFORMS": "cpu",
    }
    env.pop("TF_CPP_MIN_LOG_LEVEL", None)
    if limit:
        env |= {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit)}
    text = " ".join(f"'{part}'" for part in command)
    shell = f"ulimit -v {virtual}; {text}" if virtual else text
    done = subprocess.run(
        ["bash", "-c", shell], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, check=False, timeout=90
    )
    log = done.stdout.decode("utf-8", "replace").replace(str(HERE.parents[2]), "/home/user/project")
    return f"$ python train.py\n{log}"


def entry_of(name, log):
    _, cause, limit, _ = CASES[name]
    if name == "recovers_then_fails":  # what ends it is what is explained
        log = log[log.rindex("Allocator (bfc") :]
    return {"file": f"{name}.log", "cause": cause, "made": "run"} | known(log, limit)


def known(log, limit):
    """Numbers that can be had without reading the log as Legroom does."""
    found = {}
    asked = [int(size) for size in re.findall(r"ran out of memory trying to allocate [^\n(]*\(rounded to (\d+)\)", log)]
    shapes = re.findall(r"OOM when allocating tensor with shape\[([\d,]*)\] and type (\w+)", log)
    if asked:
        dump = log[log.index("BFCAllocator dump") : log.index("Sum Total of in-use")]
        held = sum(int(count) * int(size) for count, size in re.findall(r"(\d+) Chunks of size (\d+) totalling", dump))
        holes = [int(size) for size in re.findall(r"Free  at \w+ of size (\d+)", dump)]
        said = re.search(r"\nLimit: +([\d.]+)(\w)iB", log)  # 1500 MB are said as 1.46GiB: the text holds no more
        limit_bytes = int(Decimal(said[1]) * 1024 ** " KMG".index(said[2]))
        assert abs(limit_bytes - limit * MIB) < 0.005 * limit * MIB
        found = {
            "failed_bytes": asked[0],
            "limit_bytes": limit_bytes,
            "in_use_bytes": held,
            "free_bytes": limit_bytes - held,
        }
        found["largest_free_bytes"] = max(holes, default=0)
        found["allocator"] = re.search(r"Allocator \((\w+)\) ran out", log)[1]
    if shapes:
        found["tensor_shape"] = [int(size) for size in shapes[0][0].split(",")]
        found["dtype"] = {"float": "float32", "double": "float64"}.get(shapes[0][1], shapes[0][1])
    numpy = re.search(
        r"Unable to allocate ([\d.]+) (\wiB) for an array with shape \(([\d, ]+)\) and data type (\w+)", log
    )
    if numpy and not asked:
        found = {"failed_bytes": int(Decimal(numpy[1]) * 1024 ** (" KMGT".index(numpy[2][0]))), "dtype": numpy[4]}
        found["tensor_shape"] = [int(size) for size in numpy[3].split(",")]
        found["failed_bytes"] = prod(found["tensor_shape"]) * int(numpy[4][-2:]) // 8
    jax = re.search(r"[Oo]ut of memory allocating (\d+) bytes", log)
    if jax:
        found["failed_bytes"] = int(jax[1])
    return found


def main():
    reuse = "--reuse" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--reuse"] or list(CASES)
    entries = {entry["file"]: entry for entry in json.loads(MANIFEST.read_text())} if MANIFEST.exists() else {}
    for name in names:
        path = LOGS / f"{name}.log"
        if reuse and path.exists():
            log, entry = path.read_text(), entry_of(name, path.read_text())
        else:
            log = run(name)
            entry = entry_of(name, log)
        (LOGS / entry["file"]).write_text(log)
        entries[entry["file"]] = entry
        print(name, len(log), entry, flush=True)
    MANIFEST.write_text("[\n" + ",\n".join(json.dumps(entry) for _, entry in sorted(entries.items())) + "\n]\n")


if __name__ == "__main__":
    main()
