"""`fit` on arrays in a process of its own, with or without streaming: its weights and its peak, as JSON."""

import json
import pathlib
import sys

import keras
import numpy as np

import legroom
from legroom.data import unmodified


def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{name}:"))


how, dtype, megabytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
keras.utils.set_random_seed(1)
model = keras.Sequential(
    [keras.Input((32, 32)), keras.layers.Rescaling(1e-2), keras.layers.Flatten(), keras.layers.Dense(3)]
)
model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(np.zeros((70, 32, 32), dtype), np.zeros(70, int), batch_size=70, verbose=0)
count = megabytes * 2**20 // 1024 // np.dtype(dtype).itemsize
x = np.empty((count, 32, 32), dtype)
for start in range(0, count, 512):
    x[start : start + 512] = np.random.default_rng(start).random(x[start : start + 512].shape) * 100
y = np.random.default_rng(0).integers(0, 3, count)
keras.utils.set_random_seed(2)
pathlib.Path("/proc/self/clear_refs").write_text("5")
base = status("VmRSS")
arguments = {"batch_size": 70, "epochs": 2, "verbose": 0, "class_weight": {0: 1.0, 1: 2.0, 2: 0.5}}
split = {"validation_split": 0.2} if how.endswith("split") else {}
if how.startswith("installed"):
    undo = unmodified.install(64 * 2**20)
    model.fit(x, y, **arguments, **split)
    undo()
elif how.startswith("fit"):
    legroom.fit(model, x, y, ram="64MiB", **arguments, **split)
else:
    model.fit(x, y, **arguments, **split)
peak = status("VmHWM")
left = [name for name in ("cast",) if name in vars(keras.src.trainers.data_adapters.array_slicing.NumpySliceable)]
predicted = float(np.abs(model.predict(x[:100], verbose=0)).sum())
weights = [float(weight.astype("float64").sum()) for weight in model.get_weights()]
print(json.dumps({"weights": weights, "grown": peak - base, "array": x.nbytes, "left": left, "predicted": predicted}))
