"""The same small data in every kind of source: sample i is full of i, and its label is i."""

import numpy as np

COUNT = 203
X = np.broadcast_to(np.arange(COUNT, dtype=np.float32)[:, None, None], (COUNT, 6, 5)).copy()
Y = np.arange(COUNT)
KINDS = (
    *(
        "arrays",
        "dictionary",
        "float64",
        "fortran",
        "memmap",
        "part of a memmap",
        "npy",
        "fortran npy",
        "npz",
        "packed npz",
    ),
    *(
        "hdf5",
        "open hdf5",
        "packed hdf5",
        "zarr",
        "open zarr",
        "parquet",
        "arrow",
        "table",
        "tfrecord",
        "sequence",
        "list",
        "lists",
    ),
    "grain",
)


class Pairs:
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return X[index], Y[index]


def make(kind, folder):
    """What `legroom.stream` is given, and its arguments."""
    if kind in ("npy", "fortran npy", "memmap", "part of a memmap"):
        padded = np.concatenate([X[:3], X]) if kind == "part of a memmap" else X
        np.save(folder / "x.npy", np.asfortranarray(padded) if kind == "fortran npy" else padded)
        np.save(folder / "y.npy", Y)
        mapped = np.load(folder / "x.npy", mmap_mode="r")
        given = {"memmap": (mapped, Y), "part of a memmap": (mapped[3:], Y)}
        return given.get(kind, (folder / "x.npy", str(folder / "y.npy"))), {}
    if kind in ("npz", "packed npz"):
        (np.savez if kind == "npz" else np.savez_compressed)(folder / "a.npz", x=X, y=Y)
        return folder / "a.npz", {}
    if "hdf5" in kind:
        return hdf5(kind, folder)
    if "zarr" in kind:
        import zarr

        group = zarr.open_group(folder / "a.zarr", mode="w")
        group.create_array("x", data=X, chunks=(50, 6, 5))
        group.create_array("y", data=Y)
        return (folder / "a.zarr" if kind == "zarr" else (group["x"], group["y"])), {}
    if kind in ("parquet", "arrow", "table"):
        return table(kind, folder)
    if kind == "tfrecord":
        return records(folder), {}
    if kind == "grain":
        import grain

        return grain.MapDataset.source(Pairs()), {}
    plain = {
        "arrays": (X, Y),
        "dictionary": {"x": X, "y": Y},
        "float64": (X.astype(np.float64), Y),
        "fortran": (np.asfortranarray(X), Y),
        "sequence": Pairs(),
        "list": [(X[i], Y[i]) for i in range(COUNT)],
        "lists": ([X[i] for i in range(COUNT)], Y.tolist()),
    }
    return plain[kind], {}


def hdf5(kind, folder):
    import h5py

    packed = {"compression": "gzip", "chunks": (50, 6, 5)} if kind == "packed hdf5" else {}
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("x", data=X, **packed)
        file["y"] = Y
        file["other"] = np.zeros(3)
    if kind == "open hdf5":
        file = h5py.File(folder / "a.h5", "r")
        return (file["x"], file["y"]), {}
    return folder / "a.h5", {"columns": ("x", "y")}


def table(kind, folder):
    import pyarrow as pa
    from pyarrow import parquet

    flat = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 30)
    made = pa.table({"x": flat, "y": Y, "text": ["word" * (i % 3) for i in range(COUNT)]})
    if kind == "table":
        return made, {"columns": ("x", "y")}
    if kind == "parquet":
        parquet.write_table(made, folder / "a.parquet", row_group_size=60)
        return folder / "a.parquet", {"columns": ("x", "y")}
    with pa.OSFile(str(folder / "a.arrow"), "wb") as file, pa.ipc.new_file(file, made.schema) as out:
        out.write_table(made)
    return folder / "a.arrow", {"columns": ("x", "y")}


def records(folder):
    import tensorflow as tf

    feature, floats, ints = tf.train.Feature, tf.train.FloatList, tf.train.Int64List
    for part in range(2):
        with tf.io.TFRecordWriter(str(folder / f"{part}.tfrecord")) as out:
            for i in range(part * 100, COUNT if part else 100):
                found = {"x": feature(float_list=floats(value=X[i].ravel())), "y": feature(int64_list=ints(value=[i]))}
                out.write(tf.train.Example(features=tf.train.Features(feature=found)).SerializeToString())
    return str(folder / "*.tfrecord")
