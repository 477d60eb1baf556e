"""A benchmark's own program in a process whose TensorFlow has the BFC allocator on the CPU, with a limit."""

import json
import os
import subprocess
import sys
from typing import Any

MIB = 2**20


def placed(array: Any) -> Any:
    """The array as a tensor in TensorFlow's own memory, in one piece: of one that is aligned it would take NumPy's for its own."""
    import numpy as np
    import tensorflow as tf

    spare = np.empty(array.nbytes + 128, np.uint8)
    odd = np.frombuffer(spare, array.dtype, array.size, offset=8 + -spare.ctypes.data % 64).reshape(array.shape)
    odd[...] = array
    return tf.constant(odd)


def ask(program: str, *arguments: str, limit: int | None = None, patience: float | None = None) -> dict[str, Any]:
    """The last line `ROW {…}` that it prints; {"failed": True} where memory ended it before, or it took longer than that: TensorFlow waits ten
    seconds for each op that finds no room."""
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    env |= {"CUDA_VISIBLE_DEVICES": "-1"}
    if limit is not None:
        env |= {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit // MIB)}
    command = [sys.executable, program, *arguments]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=patience)
    except subprocess.TimeoutExpired:
        return {"failed": True}
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if rows:
        return dict(json.loads(rows[-1]))
    if done.returncode < 0 or "OOM" in done.stderr:
        return {"failed": True}
    raise RuntimeError(f"{arguments}: {done.stderr[-1500:]}")
