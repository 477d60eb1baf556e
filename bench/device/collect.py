"""Measure real peaks on a real GPU: the rows of `data/h200_*.jsonl`. Needs the GPU; never run by CI.

    python bench/device/collect.py --backend jax --out OUT --jobs 3 [case …]

A case is model:batch:policy:mode with a model of `bench/zoo.py`, e.g. `vgg16:64:float32:xla`. Each runs in a process of
its own with memory growth on. JAX rows are read from the compiler on the GPU (`compiled_total_bytes`); TensorFlow rows
from its allocator (`peak_bytes` after `reset_memory_stats`, the first step's peak apart). The compiler's own dump of each
XLA program goes to OUT/dumps for whoever wants to know why a prediction was off.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

HELD_OUT = [
    *("vgg16:64:float32", "vgg16:64:mixed_bfloat16", "mobilenetv2:64:float32", "mobilenetv2:128:mixed_bfloat16"),
    *("efficientnetb0:32:float32", "densenet121:32:float32", "xception:16:float32", "vit:64:float32"),
    *("vit:64:mixed_bfloat16", "bert:64:float32", "bert:128:mixed_bfloat16", "recommender:1024:float32"),
    *("wide_dense:512:float32", "volume:16:float32", "sound:64:float32", "autoencoder:64:float32"),
    "autoencoder:64:mixed_bfloat16",
]
UNSEEN = [
    *("tutorial_cnn:128:float32", "super_resolution:32:float32", "super_resolution:32:mixed_bfloat16"),
    *("odd_unet:16:float32", "odd_unet:16:mixed_bfloat16", "inceptionv3:32:float32", "convnexttiny:16:float32"),
    *("resnet101v2:16:float32", "efficientnetv2b0:32:mixed_bfloat16"),
]


def measure_jax(name: str, batch: int, policy: str) -> dict[str, object]:
    import jax
    import zoo

    model, x, y = zoo.setup(name, batch, policy)
    model._symbolic_build(data_batch=(x, y))
    model.optimizer.build(model.trainable_variables)
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([v.value for v in group] for group in groups)
    compiled = (
        jax.jit(model.train_step, donate_argnums=0).lower(state, (jax.device_put(x), jax.device_put(y))).compile()
    )
    stats = compiled.memory_analysis()
    total = (
        stats.argument_size_in_bytes + stats.temp_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    )
    return {
        "compiled_total_bytes": total,
        "temp_bytes": stats.temp_size_in_bytes,
        "argument_bytes": stats.argument_size_in_bytes,
        "limit_bytes": jax.devices()[0].memory_stats()["bytes_limit"],
        "text": compiled.as_text(),
    }


def measure_tensorflow(name: str, batch: int, policy: str, mode: str) -> dict[str, object]:
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    import zoo

    memory = tf.config.experimental.get_memory_info
    model, x, y = zoo.setup(name, batch, policy)
    model._symbolic_build(data_batch=(x, y))
    model.optimizer.build(model.trainable_variables)
    step = tf.function(lambda a, b: model.train_step((a, b)), jit_compile=mode == "xla")
    x, y = tf.constant(x), tf.constant(y)
    before = memory("GPU:0")["current"]
    tf.config.experimental.reset_memory_stats("GPU:0")
    step(x, y)
    first = memory("GPU:0")["peak"]
    peaks = []
    for _ in range(3):
        tf.config.experimental.reset_memory_stats("GPU:0")
        step(x, y)
        peaks.append(memory("GPU:0")["peak"])
    return {"peak_bytes": max(peaks), "peak_with_autotune_bytes": first, "resident_before_bytes": before}


def measure(case: str, backend: str, dumps: pathlib.Path) -> None:
    """One case, in this process; prints its row."""
    name, batch, policy, mode = case.split(":")
    sys.path.insert(0, str(HERE.parent))
    if backend == "jax":
        found = measure_jax(name, int(batch), policy)
        text = str(found.pop("text"))
        with gzip.open(dumps / f"jax.{name}.{batch}.{policy}.hlo.txt.gz", "wt") as file:
            file.write(text)
    else:
        found = measure_tensorflow(name, int(batch), policy, mode)
    row = {"backend": backend, "mode": mode, "model": name, "batch": int(batch), "policy": policy}
    print("ROW " + json.dumps(row | found), flush=True)


def spawn(case: str, backend: str, out: pathlib.Path) -> str:
    """One case, in a process of its own; its row, or what went wrong."""
    dump = out / "dumps" / f"{backend}.{case.replace(':', '.')}"
    env = os.environ | {
        "KERAS_BACKEND": backend,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    env["TF_CPP_MIN_LOG_LEVEL"] = "0"
    if backend == "tensorflow" and case.endswith(":xla"):
        env["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + f" --xla_dump_to={dump} --xla_dump_hlo_as_text"
    command = [sys.executable, __file__, "--backend", backend, "--out", str(out), "--one", case]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)
    for file in dump.glob("*") if dump.is_dir() else ():
        if "gpu_after_optimizations" in file.name and "memory-usage" not in file.name:
            (out / "dumps" / f"{dump.name}.{file.name[-60:]}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    created = [line for line in done.stderr.splitlines() if "Created device" in line][:1]
    return (
        rows[0]
        if rows
        else json.dumps({"case": case, "backend": backend, "error": (done.stderr or done.stdout)[-1500:]})
        + "".join(created)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["jax", "tensorflow"], required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--one")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    (options.out / "dumps").mkdir(parents=True, exist_ok=True)
    if options.one:
        measure(options.one, options.backend, options.out / "dumps")
        return
    cases = options.cases or [f"{case}:xla" for case in HELD_OUT + UNSEEN]
    with (
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
        (options.out / f"{options.backend}.jsonl").open("a") as file,
    ):
        for future in concurrent.futures.as_completed(
            [pool.submit(spawn, case, options.backend, options.out) for case in cases]
        ):
            try:
                line = future.result()
            except subprocess.TimeoutExpired as error:
                line = json.dumps({"error": str(error)[:300]})
            print(line[:400], flush=True)
            file.write(line + "\n")
            file.flush()


if __name__ == "__main__":
    main()
