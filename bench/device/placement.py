"""What of a training's data lies in a GPU's memory: `fit` and tf.data with arrays of 512 MiB, on a machine with a GPU.

    python bench/device/placement.py [CASE …] > bench/data/h200_placement.jsonl

A line for each case: MiB in use on the GPU at the end of the first epoch's fourth step, and of the last epoch's. TensorFlow only.
"""

import json
import subprocess
import sys
from typing import Any

ROWS, COLUMNS = 4096, (128, 256)
DTYPES = {"fit_uint8": "uint8", "fit_int32": "int32", "fit_float64": "float64", "fit_int64": "int64"}
CASES = (
    *("fit", *DTYPES, "validation_data", "validation_split", "slices", "slices_on_cpu", "tensors", "tensors_on_cpu"),
    *("slices_of_tensors_on_cpu", "generator", "pydataset"),
)


def arrays(case: str) -> tuple[Any, Any]:
    import numpy as np

    return np.zeros((ROWS, *COLUMNS), DTYPES.get(case, "float32")), np.zeros((ROWS, 1), "float32")


def given(case: str) -> tuple[dict[str, Any], int]:
    """What `fit` is given in this case, and for how many epochs."""
    import keras
    import tensorflow as tf

    x, y = arrays(case)
    slices = tf.data.Dataset.from_tensor_slices
    if case == "validation_data":
        half = ROWS // 2
        return {"x": x[:half], "y": y[:half], "validation_data": (x[half:], y[half:]), "batch_size": 64}, 2
    if case == "validation_split":
        return {"x": x, "y": y, "validation_split": 0.25, "batch_size": 64}, 2
    if case == "slices":
        return {"x": slices((x, y)).batch(64)}, 1
    if case == "slices_on_cpu":
        with tf.device("CPU"):
            return {"x": slices((x, y)).batch(64)}, 1
    if case == "tensors":
        return {"x": tf.constant(x), "y": tf.constant(y), "batch_size": 64}, 1
    if case in ("tensors_on_cpu", "slices_of_tensors_on_cpu"):
        with tf.device("CPU"):
            x, y = tf.constant(x), tf.constant(y)
        return ({"x": x, "y": y, "batch_size": 64} if case == "tensors_on_cpu" else {"x": slices((x, y)).batch(64)}), 1
    if case == "generator":
        signature = (tf.TensorSpec(COLUMNS, "float32"), tf.TensorSpec((1,), "float32"))
        pairs = zip(x[:640], y, strict=False)
        return {"x": tf.data.Dataset.from_generator(lambda: pairs, output_signature=signature).batch(64)}, 1
    if case == "pydataset":

        class Batches(keras.utils.PyDataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return 10

            def __getitem__(self, i: int) -> tuple[Any, Any]:
                return x[i * 64 : (i + 1) * 64], y[i * 64 : (i + 1) * 64]

        return {"x": Batches()}, 1
    return {"x": x, "y": y, "batch_size": 64}, 1


def measure(case: str) -> None:
    import keras
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=6000)])
    arguments, epochs = given(case)
    model = keras.Sequential([keras.Input(COLUMNS), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    seen: list[int] = []

    class Look(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 3:
                seen.append(tf.config.experimental.get_memory_info("GPU:0")["current"] >> 20)

    model.fit(**arguments, epochs=epochs, verbose=0, callbacks=[Look()])
    print(json.dumps({"case": case, "epochs": epochs, "first_mib": seen[0], "last_mib": seen[-1]}), flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        measure(sys.argv[2])
        return
    for case in sys.argv[1:] or CASES:
        subprocess.run([sys.executable, __file__, "--one", case], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
