"""cuDNN's own answer to "how large are the workspace and the reserve of this LSTM?", over a grid, on a real GPU.

    python bench/device/rnn_sizes.py > bench/data/h200_rnn_sizes.jsonl

Asks through JAX's plugin what `jax.experimental.rnn` asks. `legroom.engines.xla.cudnn_rnn` stands in for it elsewhere.
"""

import itertools
import json

import jax
from jaxlib import gpu_rnn

jax.devices()
for i, h, b, t, two, tf32 in itertools.product(
    (1, 16, 128, 200, 512),
    (8, 64, 100, 128, 512, 1024),
    (1, 7, 32, 128, 256),
    (1, 10, 100, 256),
    (False, True),
    (True, False),
):
    workspace, reserve = gpu_rnn.compute_rnn_workspace_reserve_space_sizes(i, h, 1, b, t, 0.0, two, tf32)
    row = {"input": i, "hidden": h, "batch": b, "length": t, "bidirectional": two, "tf32": tf32}
    print(json.dumps(row | {"workspace_bytes": workspace, "reserve_bytes": reserve}))
