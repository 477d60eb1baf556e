"""What steps take from CUDA's own pool (TF_GPU_ALLOCATOR=cuda_malloc_async) and from TensorFlow's, and what still trains where little is left of the card.

    python bench/device/cuda_pool.py WANTED.json --out FILE [--jobs 8]

WANTED is a list of {"model", "batch"}: 12 steps op by op with either allocator, in processes of their own, several at a time; a line each, with the largest of what was used and of what was
reserved, and a step's time, which is only to be compared within a line's model. With "left" (MiB) the rest of the card is taken first, and these run one by one at the end. Nothing here asks Legroom.
"""

import argparse
import concurrent.futures
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

STEPS, TIMED = 12, 8
POOLS = ("bfc", "cuda_malloc_async")
RESERVED_HIGH, USED_HIGH = 6, 8  # CUmemPool_attribute
MIB = 2**20


class Driver:
    """Of the first card."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.cuda.cuInit(0)

    def highs(self) -> dict[str, int]:
        pool, value = ctypes.c_void_p(), ctypes.c_uint64()
        self.cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0)
        found = {}
        for name, attribute in (("reserved", RESERVED_HIGH), ("used", USED_HIGH)):
            self.cuda.cuMemPoolGetAttribute(pool, attribute, ctypes.byref(value))
            found[name] = value.value
        return found

    def leave(self, left_bytes: int) -> None:
        """Take all of the card but so much."""
        context, free, total, held = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
        self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.cuda.cuCtxSetCurrent(context)
        self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        failed = self.cuda.cuMemAlloc_v2(ctypes.byref(held), ctypes.c_size_t(free.value - left_bytes))
        assert not failed, failed


def measure(name: str, batch: int, left: int) -> dict[str, Any]:
    import tensorflow as tf
    from largest_on_cpu import made

    driver = Driver()
    tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)
    warm = tf.nn.conv2d(tf.ones((1, 8, 8, 8)), tf.ones((3, 3, 8, 8)), 1, "SAME")  # the libraries take their own before
    float(tf.reduce_sum(tf.matmul(warm[0, 0], warm[0, 0], transpose_b=True)))
    if left:
        driver.leave(left * MIB)
    model, x, y = made(name, "plain", batch)
    with tf.device("CPU"):
        data = tf.data.Dataset.from_tensors((x, y)).repeat()
    try:
        model.fit(data, epochs=1, steps_per_epoch=STEPS, verbose=0)
        started = time.perf_counter()
        model.fit(data, epochs=1, steps_per_epoch=TIMED, verbose=0)
        seconds = (time.perf_counter() - started) / TIMED
    except (tf.errors.ResourceExhaustedError, tf.errors.InternalError, tf.errors.UnknownError) as error:
        return {"fits": False, "why": str(error)[-300:], **driver.highs()}
    peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return {"fits": True, "peak": peak, "seconds": round(seconds, 4), **driver.highs()}


def run(case: dict[str, Any], pool: str) -> dict[str, Any]:
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    env |= {"TF_GPU_ALLOCATOR": pool} if pool != "bfc" else {}
    command = [sys.executable, __file__, "--measure", case["model"], str(case["batch"]), str(case.get("left", 0))]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    except subprocess.TimeoutExpired:
        return {"fits": None, "why": "too slow"}
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    return dict(json.loads(rows[0])) if rows else {"fits": False, "why": f"{done.returncode}: {done.stderr[-400:]}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="?")
    parser.add_argument("--out")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--measure", nargs=3)
    options = parser.parse_args()
    if options.measure:
        name, batch, left = options.measure
        print("ROW " + json.dumps(measure(name, int(batch), int(left))), flush=True)
        return
    held, file = threading.Lock(), pathlib.Path(options.out).open("a")  # noqa: SIM115

    def find(case: dict[str, Any]) -> None:
        for pool in case.get("pools", POOLS):
            found = run(case, pool)
            with held:
                file.write(json.dumps({**case, "pool": pool, **found}) + "\n")
                file.flush()

    cases = json.loads(pathlib.Path(options.wanted).read_text())
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as workers:
        list(workers.map(find, [case for case in cases if "left" not in case]))
    for case in cases:
        if "left" in case:
            find(case)


if __name__ == "__main__":
    main()
