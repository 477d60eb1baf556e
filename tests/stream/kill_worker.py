"""Trains on a stream and is killed at a step: what it used goes into a log, where it stands into a checkpoint, atomically."""

import json
import os
import pathlib
import signal
import sys

import numpy as np

import legroom

folder, kill_at = pathlib.Path(sys.argv[1]), int(sys.argv[2])
stream = legroom.stream(folder / "x.npy", batch_size=16, ram="1MiB", seed=5, verbose=False)
saved = folder / "state.json"
log = {"used": []}
if saved.exists():
    log = json.loads(saved.read_text())
    stream.restore(log["state"])
steps = 0
while stream.state()["epoch"] < 2:
    for batch in stream:
        steps += 1
        log["used"].append([stream.run.epoch, np.asarray(batch)[:, 0].tolist()])
        log["state"] = stream.state()
        (folder / "new.json").write_text(json.dumps(log))
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        os.replace(folder / "new.json", saved)
print("done")
