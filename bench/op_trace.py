"""What TensorFlow's executor and allocator really do in one training step, op by op, read from TensorFlow's own logs.

    python bench/op_trace.py MODEL:BATCH:POLICY:MODE … --out DIR [--device GPU:0] [--jobs 4]

MODE is `graph` (a plain tf.function) or `eager`. For each case a line of DIR/rows.jsonl (peaks of four steps, the first
apart, and what was resident before) and DIR/CASE.json.gz: `events` of one steady step and `graph`, the optimised graph's
nodes. Events, in the order of the log: ["node", thread, name, kind], ["alloc", thread, bytes, address],
["free", thread, bytes], ["tensor", thread, kernel, allocation id, bytes], ["drop", thread, allocation id].
On a GPU memory grows, or with LEGROOM_POOL_MIB is one pool of that size, as it is by default. On a CPU the allocator is the real BFC (docs/how-it-works.md); a tensor's bytes are what was asked for.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
TRACED = 3  # the step whose events are kept; the first ones tune and warm up
LINE = re.compile(r"\S+ \S+\s+(\d+) (\w+)\.cc:\d+\] (.*)")
NODE = re.compile(r"Process node: \d+ step \S+ \{\{node (\S+)\}\} = ([\w>]+)")
ALLOCATED = re.compile(r"AllocateRaw (\S+)\s+(\d+) (0x[0-9a-f]+)")
FREED = re.compile(r"DeallocateRaw (\S+) (\d+)")
TENSOR = re.compile(
    r'MemoryLogTensorAllocation .*?kernel_name: "([^"]*)".*?requested_bytes: (\d+).*?allocator_name: "([^"]+)" allocation_id: (\d+)'
)
DROPPED = re.compile(r'MemoryLogTensorDeallocation .*?allocation_id: (\d+) allocator_name: "([^"]+)"')


def parse(lines: Iterable[str], allocator: str) -> Iterator[list[Any]]:
    """The events of a log, of one allocator."""
    for line in lines:
        found = LINE.match(line)
        if found is None:
            continue
        thread, source, text = int(found[1]), found[2], found[3]
        if source == "executor" and (node := NODE.match(text)):
            yield ["node", thread, node[1], node[2]]
        elif source == "bfc_allocator" and (alloc := ALLOCATED.match(text)) and alloc[1] == allocator:
            yield ["alloc", thread, int(alloc[2]), alloc[3]]
        elif source == "bfc_allocator" and (free := FREED.match(text)) and free[1] == allocator:
            yield ["free", thread, int(free[2])]
        elif source == "log_memory" and (tensor := TENSOR.search(text)) and tensor[3] == allocator:
            yield ["tensor", thread, tensor[1], int(tensor[4]), int(tensor[2])]
        elif source == "log_memory" and (drop := DROPPED.search(text)) and drop[2] == allocator:
            yield ["drop", thread, int(drop[1])]


def measure(case: str, device: str) -> None:
    """One case in this process: steps between marks on stderr; prints its row."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    pool = int(os.environ.get("LEGROOM_POOL_MIB", "0"))
    for gpu in tf.config.list_physical_devices("GPU"):
        if pool:
            tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=pool)])
        else:
            tf.config.experimental.set_memory_growth(gpu, True)
    sys.path.insert(0, str(HERE))
    import zoo

    name, batch, policy, mode = case.split(":")
    model, x, y = zoo.setup(name, int(batch), policy)
    model._symbolic_build(data_batch=(x, y))
    model.optimizer.build(model.trainable_variables)
    step = tf.function(lambda a, b: model.train_step((a, b)), jit_compile=False)
    if mode == "eager":
        step = lambda a, b: model.train_step((a, b))  # noqa: E731
    x, y = tf.constant(x), tf.constant(y)
    memory = tf.config.experimental.get_memory_info
    before = memory(device)["current"]
    peaks, graph = [], []
    for number in range(TRACED + 1):
        tf.config.experimental.reset_memory_stats(device)
        if number == 0 and mode == "graph":
            context.enable_run_metadata()
        print(f"=== STEP {number}", file=sys.stderr, flush=True)
        step(x, y)
        print(f"=== END {number}", file=sys.stderr, flush=True)
        if number == 0 and mode == "graph":
            graphs = context.export_run_metadata().function_graphs
            context.disable_run_metadata()
            parts = [part for each in graphs for part in each.partition_graphs]
            graph = [max(parts, key=lambda part: len(part.node))] if parts else []
        peaks.append(memory(device)["peak"])
    nodes = [[n.name, n.op, list(n.input), n.device[-5:]] for part in graph for n in part.node]
    row = {"model": name, "batch": int(batch), "policy": policy, "mode": mode, "device": device}
    row |= {"peaks": peaks, "resident_before_bytes": before, "resident_bytes": memory(device)["current"]}
    print("ROW " + json.dumps(row), flush=True)
    print("GRAPH " + json.dumps(nodes), flush=True)


def spawn(case: str, device: str, out: pathlib.Path, limit: int) -> str:
    """One case in a process of its own."""
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "0", "TF_ENABLE_ONEDNN_OPTS": "0"}
    env["TF_CPP_VMODULE"] = "bfc_allocator=3,log_memory=2,executor=1"
    allocator = "GPU_0_bfc"
    if device.startswith("CPU"):
        env |= {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit), "CUDA_VISIBLE_DEVICES": "-1"}
        allocator = "bfc_cpu_allocator_for_gpu"
    command = [sys.executable, __file__, "--one", case, "--device", device]
    events: list[list[Any]] = []
    with (
        subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process,
        concurrent.futures.ThreadPoolExecutor(1) as reader,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        said = reader.submit(process.stdout.read)
        tail: list[str] = []
        keep = False
        kept: list[str] = []
        for line in process.stderr:
            if line.startswith("=== "):
                keep = line.startswith(f"=== STEP {TRACED}")
            elif keep:
                kept.append(line)
            elif "AllocateRaw" not in line and "Process node" not in line and "LOG_MEMORY" not in line:
                tail = [*tail[-20:], line]
        events = list(parse(kept, allocator))
        text = said.result()
    row = next((line[4:] for line in text.splitlines() if line.startswith("ROW ")), None)
    if row is None:
        return json.dumps({"case": case, "error": "".join(tail)[-800:]})
    graph = json.loads(next(line[6:] for line in text.splitlines() if line.startswith("GRAPH ")))
    with gzip.open(out / f"{case.replace(':', '.')}.json.gz", "wt") as file:
        json.dump({"events": events, "graph": graph}, file)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--one")
    parser.add_argument("--device", default="CPU:0")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("traces"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=int, default=12000, help="MiB, on a CPU")
    options = parser.parse_args()
    if options.one:
        measure(options.one, options.device)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with (
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
        (options.out / "rows.jsonl").open("a") as file,
    ):
        for line in pool.map(lambda case: spawn(case, options.device, options.out, options.limit), options.cases):
            print(line[:1200], flush=True)
            file.write(line + "\n")
            file.flush()


if __name__ == "__main__":
    main()
