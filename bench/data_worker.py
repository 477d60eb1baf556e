"""One measured run of data on demand, in a process of its own: `python bench/data_worker.py WHAT JSON`, the answer as JSON.

Base is the RSS of a process with the frameworks, the format's library and a model that has trained one batch; the peak is VmHWM, whose count
starts there (/proc/self/clear_refs).
"""

import gc
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np

SHAPE = (64, 64, 3)  # uint8: 12 KiB a sample
LIBRARIES = {"hdf5": "h5py", "hdf5-gzip": "h5py", "zarr": "zarr", "parquet": "pyarrow.parquet", "images": "PIL.Image"}


def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{name}:"))


def forget_peak():
    gc.collect()
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def rows(start, stop):
    """Samples that carry their number in their first four bytes."""
    made = np.random.default_rng(start).integers(0, 256, (stop - start, *SHAPE), np.uint8)
    made.reshape(stop - start, -1)[:, :4] = np.arange(start, stop, dtype="<u4").view(np.uint8).reshape(-1, 4)
    return made


def numbers(batch):
    flat = np.ascontiguousarray(np.asarray(batch).reshape(len(batch), -1)[:, :4])
    return flat.view("<u4").ravel()


def write(kind, folder, count):  # noqa: PLR0912
    """A file of that kind with `count` samples, written in pieces."""
    folder = pathlib.Path(folder)
    labels = np.arange(count) % 10
    pieces = [(start, min(start + 500, count)) for start in range(0, count, 500)]
    if kind in ("npy", "memmap"):
        out = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (count, *SHAPE))
        for start, stop in pieces:
            out[start:stop] = rows(start, stop)
        np.save(folder / "y.npy", labels)
    elif kind.startswith("hdf5"):
        import h5py

        packed = {"compression": "gzip", "compression_opts": 1, "chunks": (64, *SHAPE)} if "gzip" in kind else {}
        with h5py.File(folder / "a.h5", "w") as file:
            out = file.create_dataset("x", (count, *SHAPE), np.uint8, **packed)
            for start, stop in pieces:
                out[start:stop] = rows(start, stop)
            file["y"] = labels
    elif kind == "zarr":
        import zarr

        group = zarr.open_group(folder / "a.zarr", mode="w")
        out = group.create_array("x", shape=(count, *SHAPE), chunks=(64, *SHAPE), dtype="uint8")
        for start, stop in pieces:
            out[start:stop] = rows(start, stop)
        group.create_array("y", data=labels)
    elif kind == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        size = int(np.prod(SHAPE))
        schema = pa.schema({"x": pa.list_(pa.uint8(), size), "y": pa.int64()})
        with parquet.ParquetWriter(folder / "a.parquet", schema) as out:
            for start, stop in pieces:
                flat = pa.FixedSizeListArray.from_arrays(pa.array(rows(start, stop).reshape(-1)), size)
                out.write_table(pa.table({"x": flat, "y": labels[start:stop]}, schema=schema))
    elif kind == "tfrecord":
        import tensorflow as tf

        with tf.io.TFRecordWriter(str(folder / "a.tfrecord")) as out:
            for start, stop in pieces:
                for row in rows(start, stop):
                    out.write(row.tobytes())
    elif kind == "images":
        from PIL import Image

        for start, stop in pieces:
            for number, row in zip(range(start, stop), rows(start, stop), strict=True):
                (folder / "img" / str(number % 10)).mkdir(parents=True, exist_ok=True)
                Image.fromarray(row).save(folder / "img" / str(number % 10) / f"{number}.png", compress_level=1)


def source(kind, folder, count):
    """What `legroom.stream` is given for that kind, and with which arguments."""
    folder = pathlib.Path(folder)
    if kind == "npy":
        return (folder / "x.npy", folder / "y.npy"), {}
    if kind == "memmap":
        return (np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy")), {}
    if kind == "tfrecord":
        return folder / "a.tfrecord", {
            "transform": lambda record: (np.frombuffer(record, np.uint8).reshape(SHAPE), record[0] % 10)
        }
    if kind == "generator":

        def samples():
            for start in range(0, count, 100):
                for row in rows(start, min(start + 100, count)):
                    yield row, row[0, 0, 0] % 10

        return samples, {"samples": count, "shuffle": False}
    if kind == "sequence":

        class Made:
            def __len__(self):
                return count

            def __getitem__(self, index):
                return rows(index, index + 1)[0], index % 10

        return Made(), {}
    if kind == "parquet":
        return folder / "a.parquet", {"transform": lambda row: (row[0].reshape(SHAPE), row[1])}
    name = {"images": "img", "zarr": "a.zarr"}.get(kind, "a.h5")
    return folder / name, {}


def small_model(kind="small"):
    import keras

    layers = keras.layers
    parts = [layers.Rescaling(1 / 255)]
    if kind == "cnn":
        for filters in (16, 32):
            parts += [layers.Conv2D(filters, 3, activation="relu"), layers.MaxPooling2D()]
    parts += [layers.GlobalAveragePooling2D(), layers.Dense(10)]
    model = keras.Sequential([keras.Input(SHAPE), *parts])
    model.compile(keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def memory(kind, folder, count, batch, budget, epochs, limit=None):
    import importlib

    import keras

    import legroom

    if kind in LIBRARIES:
        importlib.import_module(LIBRARIES[kind])
    if kind == "zarr":  # its event loop and threads begin with the first array
        import zarr

        zarr.array(np.zeros((4, 4)))[:]
    if kind == "parquet":
        import io

        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"a": [1]}), memory := io.BytesIO())
        parquet.read_table(memory)
    keras.utils.set_random_seed(0)
    given, arguments = source(kind, folder, count)
    model = small_model()
    model.fit(np.zeros((2 * batch, *SHAPE), np.uint8), np.zeros(2 * batch, int), batch_size=batch, verbose=0)
    resident = []

    class Notes(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            resident.append(status("VmRSS"))

    model.fit(
        np.zeros((batch, *SHAPE), np.uint8), np.zeros(batch, int), batch_size=batch, verbose=0, callbacks=[Notes()]
    )
    resident.clear()
    base = forget_peak()
    if limit:
        import resource

        most = status("VmData") + limit
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    begun = time.perf_counter()
    stream = legroom.stream(given, batch_size=batch, ram=budget, verbose=False, **arguments)
    model.fit(stream, epochs=epochs, verbose=0, callbacks=[Notes()])
    return {
        "base": base, "peak": status("VmHWM"), "resident": resident, "held": stream.sizes.held_bytes,
        "seconds": time.perf_counter() - begun, "epochs": stream.state()["epoch"],
    }  # fmt: skip


def whole(folder, count, batch, epochs):
    """The same data loaded and given to `fit`, for comparison."""
    import keras

    keras.utils.set_random_seed(0)
    model = small_model()
    model.fit(np.zeros((2 * batch, *SHAPE), np.uint8), np.zeros(2 * batch, int), batch_size=batch, verbose=0)
    base = forget_peak()
    x, y = np.load(pathlib.Path(folder) / "x.npy"), np.load(pathlib.Path(folder) / "y.npy")
    model.fit(x, y, batch_size=batch, epochs=epochs, verbose=0)
    return {"base": base, "peak": status("VmHWM"), "resident": [status("VmRSS")]}


def speed(step, batch, count, rounds):
    """Seconds of an epoch, the ways taking turns: `empty` loops, and `fit` of a tiny model and of a CNN."""
    import grain
    import keras
    import tensorflow as tf

    import legroom

    x, y = np.concatenate([rows(s, s + 500) for s in range(0, count, 500)]), np.arange(count) % 10
    pairs = tf.data.Dataset.from_tensor_slices((x, y))

    class Pairs:
        def __len__(self):
            return count

        def __getitem__(self, index):
            return x[index], y[index]

    ways = {
        "from_tensor_slices": pairs.batch(batch).prefetch(tf.data.AUTOTUNE),
        "from_tensor_slices, shuffled": pairs.shuffle(count).batch(batch).prefetch(tf.data.AUTOTUNE),
        "grain, shuffled": grain.MapDataset.source(Pairs()).seed(0).shuffle().batch(batch).to_iter_dataset(),
        "legroom.stream, shuffled": legroom.stream((x, y), batch_size=batch, ram="256MiB", verbose=False),
        "legroom.stream": legroom.stream((x, y), batch_size=batch, ram="256MiB", shuffle=False, verbose=False),
    }
    keras.utils.set_random_seed(0)
    model = None if step == "empty" else small_model(step)
    times = {name: [] for name in ways}

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.begun = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            if epoch:
                times[self.name].append(time.perf_counter() - self.begun)

    clock = Clock()
    for _ in range(rounds):
        for name, data in ways.items():
            clock.name = name
            if model is not None:
                model.fit(data, epochs=4, verbose=0, callbacks=[clock])
                continue
            for epoch in range(4):
                clock.on_epoch_begin(epoch)
                for _ in data:
                    pass
                clock.on_epoch_end(epoch)
    return {name: float(np.median(taken)) for name, taken in times.items()}


def slow_disk(read_seconds, step_seconds, batches):
    """A disk that takes so long for a batch, and a step that takes so long: how much of the shorter one is hidden."""
    import legroom

    class Slow:
        def __len__(self):
            return batches * 8

        def __getitem__(self, index):
            time.sleep(read_seconds / 8)
            return np.zeros((8, 8), np.float32)

    stream = legroom.stream(Slow(), batch_size=8, ram="64MiB", threads=1, verbose=False)
    begun = time.perf_counter()
    for _ in stream:
        time.sleep(step_seconds)
    return {"seconds": time.perf_counter() - begun, "batches": batches}


if __name__ == "__main__":
    what, arguments = sys.argv[1], json.loads(sys.argv[2])
    answer = globals()[what](**arguments)
    print(json.dumps(answer))
