"""`fit` on arrays under a hard limit of memory (RLIMIT_DATA): says "done" if it comes through."""

import resource
import sys

import keras
import numpy as np

import legroom

how, dtype, megabytes, more = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def data_bytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData:"))


model = keras.Sequential(
    [keras.Input((32, 32)), keras.layers.Rescaling(1e-2), keras.layers.Flatten(), keras.layers.Dense(3)]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(np.zeros((70, 32, 32), dtype), np.zeros(70, int), batch_size=70, verbose=0)
count = megabytes * 2**20 // 1024 // np.dtype(dtype).itemsize
x, y = np.ones((count, 32, 32), dtype), np.zeros(count, int)
limit = data_bytes() + more * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
if how == "streamed":
    legroom.fit(model, x, y, ram="64MiB", batch_size=70, epochs=2, verbose=0)
else:
    model.fit(x, y, batch_size=70, epochs=2, verbose=0)
print("done")
