"""What TensorFlow's CPU kernels take beside their outputs: runs single operations under the real BFC allocator and reads its log.

    .venv/bin/python bench/cpu_temporaries.py tests/engines/data/cpu_temporaries.jsonl      # measures that table again

A row of the table is one operation with its shapes, the number of threads, and `temporaries`: the bytes that were alive at
once, beside the outputs, at the fullest moment; `outputs_last` says, where sizes tell, whether they were taken before the outputs. The allocator logs every allocation (`bfc_allocator=3`), and the operation is
found in the log between two marks.
"""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from legroom.engines.op.cpu_cache import machine_l3_cache_bytes

ENVIRONMENT = {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPU_ALLOCATOR_USE_BFC": "1",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": "6000",
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "bfc_allocator=3",
    "CUDA_VISIBLE_DEVICES": "-1",
}
EVENT = re.compile(r"bfc_allocator\.cc:\d+\] (?:(AllocateRaw) \S+ +(\d+) 0x|(DeallocateRaw) \S+ +(\d+))")
MARK = re.compile(r"^@@(begin|end) (\d+)$")

# `tf.raw_ops` calls some inputs otherwise than the operation's definition does.
RENAMED = {"reduction_indices": "axis", "split_dim": "axis", "dim": "axis", "t": "x", "e": "y", "input": "condition"}

Row = dict[str, Any]


def measure(rows: list[Row], threads: int) -> list[Row]:
    """Run every row's operation in one new process and return the rows with `outputs` and `temporaries` filled in."""
    work = subprocess.run(
        [sys.executable, __file__, "--worker", str(threads)],
        input=json.dumps(rows),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    windows = _windows(work.stderr)
    measured = []
    for line in work.stdout.splitlines():
        answer = json.loads(line)
        row = {**rows[answer["row"]], "threads": threads}
        if "error" in answer:
            measured.append({**row, "error": answer["error"]})
            continue
        row["outputs"] = answer["outputs"]
        if "3D" in row["kind"]:
            row["l3_cache_bytes"] = machine_l3_cache_bytes()
        events = windows[answer["row"]]
        row["temporaries"] = _beside_outputs(events, answer["bytes"])
        if row["temporaries"] and not set(row["temporaries"]) & set(answer["bytes"]):
            row["outputs_last"] = events[0][1] not in answer["bytes"]
        measured.append(row)
    if work.returncode:
        sys.stderr.write(work.stderr[-2000:])
        measured.append({"error": f"worker ended with {work.returncode}", "kind": "?"})
    return measured


def _windows(log: str) -> dict[int, list[tuple[bool, int]]]:
    windows: dict[int, list[tuple[bool, int]]] = {}
    current: list[tuple[bool, int]] | None = None
    for line in log.splitlines():
        if mark := MARK.match(line):
            current = windows.setdefault(int(mark[2]), []) if mark[1] == "begin" else None
        elif current is not None and (event := EVENT.search(line)):
            current.append((bool(event[1]), int(event[2] or event[4])))
    return windows


def _beside_outputs(events: list[tuple[bool, int]], outputs: list[int]) -> list[int]:
    """The allocations alive at the fullest moment, less those that became the outputs."""
    alive: list[int] = []
    fullest: list[int] = []
    for allocated, size in events:
        if allocated:
            alive.append(size)
            if sum(alive) > sum(fullest):
                fullest = list(alive)
        elif size in alive:
            alive.remove(size)
    for size in outputs:
        if size in fullest:
            fullest.remove(size)
    return fullest


def _worker(threads: int) -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    for index, row in enumerate(json.load(sys.stdin)):
        try:
            inputs = [_tensor(tf, spec) for spec in row["inputs"]]
            _execute(tf, row, inputs)
            sys.stderr.write(f"@@begin {index}\n")
            sys.stderr.flush()
            outputs = _execute(tf, row, inputs)
            sys.stderr.write(f"@@end {index}\n")
            sys.stderr.flush()
        except Exception as error:  # noqa: BLE001 - the row says what went wrong
            print(json.dumps({"row": index, "error": str(error)[:300]}), flush=True)
            continue
        tensors = [tensor for tensor in outputs if tensor is not None and tensor.dtype not in (tf.variant, tf.resource)]
        print(
            json.dumps(
                {
                    "row": index,
                    "outputs": [[list(tensor.shape), tensor.dtype.name] for tensor in tensors],
                    "bytes": [tensor.dtype.size * int(tf.size(tensor)) for tensor in tensors],
                }
            ),
            flush=True,
        )


def _tensor(tf: Any, spec: list[Any]) -> Any:
    """`[shape, dtype]`, `[shape, dtype, value]`, or `["variable", shape, dtype]`."""
    if spec[0] == "variable":
        variable = tf.Variable(tf.ones(spec[1], spec[2]))
        KEPT.append(variable)
        return variable.handle
    shape, dtype, *value = spec
    if value:
        return tf.reshape(tf.constant(value[0], dtype), shape)
    if dtype in ("bool", "string") or "int" in dtype:
        return tf.zeros(shape, dtype)
    return tf.cast(tf.random.stateless_uniform(shape, (1, 2), 0.1, 1.0), dtype)


KEPT: list[Any] = []  # variables whose handles are in use


def _execute(tf: Any, row: Row, inputs: list[Any]) -> list[Any]:
    from tensorflow.python.eager import context, execute  # the operations that Grappler makes have no public name
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(row["kind"])
    lists = {argument.name for argument in definition.input_arg if argument.number_attr or argument.type_list_attr}
    kinds = {attribute.name: attribute.type for attribute in definition.attr}
    attributes = {name: _attribute(tf, value, kinds[name]) for name, value in row.get("attributes", {}).items()}
    if not row["kind"].startswith("_"):
        function = getattr(tf.raw_ops, row["kind"])
        parameters = inspect.signature(function).parameters
        arguments: dict[str, Any] = {}
        rest = list(inputs)
        for position, argument in enumerate(definition.input_arg):
            name = argument.name if argument.name in parameters else RENAMED[argument.name]
            if argument.name in lists:
                after = len(definition.input_arg) - position - 1
                count = row.get("counts", {}).get(argument.name, len(rest) - after)
                arguments[name], rest = rest[:count], rest[count:]
            else:
                arguments[name] = rest.pop(0)
        result = function(**arguments, **attributes)
        if result is None or isinstance(result, tf.Operation):
            return []
        return list(result) if isinstance(result, (tuple, list)) else [result]
    flat: list[Any] = []
    for name, value in attributes.items():
        flat += [name, value.as_datatype_enum if isinstance(value, tf.DType) else value]
    return list(
        execute.execute(
            row["kind"].encode(), row.get("output_count", 1), inputs=inputs, attrs=tuple(flat), ctx=context.context()
        )
    )


def _attribute(tf: Any, value: Any, kind: str) -> Any:
    """A plain value as TensorFlow takes it: only dtypes, which rows name, differ."""
    if kind == "type":
        return tf.as_dtype(value)
    return [tf.as_dtype(item) for item in value] if kind == "list(type)" else value


def main() -> None:
    if sys.argv[1] == "--worker":
        _worker(int(sys.argv[2]))
        return
    path = Path(sys.argv[1])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    measured = []
    for threads in sorted({row["threads"] for row in rows}):
        measured += measure([row for row in rows if row["threads"] == threads], threads)
    path.write_text("".join(json.dumps(row) + "\n" for row in measured))


if __name__ == "__main__":
    main()
