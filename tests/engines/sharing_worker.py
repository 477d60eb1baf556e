"""Run by test_sharing.py in a process whose BFC allocator logs what it gives: marks each run of an operation in the log.

Each line of the output is an operation and the numbers of its runs.
"""

import itertools
import json
import sys
from typing import Any

import tensorflow as tf

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(2)
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

raw = tf.raw_ops
wide = tf.random.stateless_uniform((512, 1024), (1, 2))  # 2 MiB: what is allocated beside it is noise
image = tf.reshape(wide, (8, 64, 64, 16))
odd = tf.ones((1024, 3, 171))
flags = wide > 0.5
row = tf.ones((1024,))

# kind, inputs by name, attributes by name. Inputs that are no tensors are constants.
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Relu", {"features": wide}, {}),
    ("Mul", {"x": wide, "y": row}, {}),
    ("Sub", {"x": row, "y": wide}, {}),
    ("Greater", {"x": wide, "y": row}, {}),
    ("ReluGrad", {"gradients": wide, "features": wide}, {}),
    ("BiasAdd", {"value": wide, "bias": row}, {}),
    ("Softmax", {"logits": wide}, {}),
    ("AddN", {"inputs": [wide, wide, wide]}, {}),
    ("AddN", {"inputs": [wide]}, {}),
    ("SelectV2", {"condition": flags, "t": wide, "e": wide}, {}),
    ("SoftmaxCrossEntropyWithLogits", {"features": wide, "labels": wide}, {}),
    ("Cast", {"x": wide}, {"DstT": tf.int32}),
    ("Cast", {"x": wide}, {"DstT": tf.float32}),
    ("TensorScatterUpdate", {"tensor": wide, "indices": [[1]], "updates": wide[:1]}, {}),
    ("Transpose", {"x": wide, "perm": [1, 0]}, {}),
    ("Transpose", {"x": wide[None], "perm": [1, 0, 2]}, {}),
    ("Reshape", {"tensor": wide, "shape": [-1]}, {}),
    ("Identity", {"input": wide}, {}),
    ("Split", {"axis": 0, "value": wide}, {"num_split": 4}),
    ("Split", {"axis": 1, "value": wide}, {"num_split": 4}),
    ("Split", {"axis": 0, "value": odd}, {"num_split": 4}),
    ("Unpack", {"value": wide[:4]}, {"num": 4}),
    ("Unpack", {"value": wide[:, :4]}, {"num": 4, "axis": 1}),
    ("Slice", {"input": wide, "begin": [8, 0], "size": [256, 1024]}, {}),
    ("Slice", {"input": wide, "begin": [0, 8], "size": [512, 512]}, {}),
    ("StridedSlice", {"input": wide, "begin": [0], "end": [256], "strides": [1]}, {}),
    ("StridedSlice", {"input": wide, "begin": [0], "end": [512], "strides": [2]}, {}),
    ("StridedSlice", {"input": image, "begin": [2], "end": [3], "strides": [1]}, {"shrink_axis_mask": 1}),
    ("Sum", {"input": wide[None], "axis": [0]}, {}),
    ("Sum", {"input": image, "axis": [3]}, {}),
    ("Tile", {"input": wide, "multiples": [1, 1]}, {}),
    ("Tile", {"input": wide, "multiples": [2, 1]}, {}),
    (
        "FusedBatchNormV3",
        {"x": image, "scale": row[:16], "offset": row[:16], "mean": row[:0], "variance": row[:0]},
        {"is_training": True},
    ),
    (
        "MaxPoolGrad",
        {"orig_input": image, "orig_output": image[:, ::2, ::2], "grad": image[:, ::2, ::2]},
        {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"},
    ),
]


NUMBERS = itertools.count()


def run(kind: str, inputs: dict[str, Any], attributes: dict[str, Any], fresh: int | None) -> tuple[list[Any], int]:
    """The outputs, and the number of the run that made them, with the input `fresh` made for this alone."""

    @tf.function
    def call(flat: list[tf.Tensor]) -> Any:
        flat = list(flat)
        if fresh is not None:
            flat[fresh] = raw.Roll(input=flat[fresh], shift=[1], axis=[0])
        tensors = iter(flat)
        arguments = {
            name: next(tensors)
            if tf.is_tensor(value)
            else [next(tensors) for _ in value]
            if name == "inputs"
            else value
            for name, value in inputs.items()
        }
        return getattr(raw, kind)(**arguments, **attributes)

    flat = [value for given in inputs.values() for value in (given if isinstance(given, list) else [given])]
    flat = [tensor for tensor in flat if tf.is_tensor(tensor)]
    call(flat)
    number = next(NUMBERS)
    mark(f"@@begin {number}")
    outputs = call(flat)
    mark(f"@@end {number}")
    return (list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]), number


def mark(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def describe(tensor: Any) -> list[Any]:
    return [tensor.shape.as_list(), tensor.dtype.name]


def main() -> None:
    for kind, inputs, attributes in CASES:
        outputs, held = run(kind, inputs, attributes, None)
        given = [
            value
            for item in inputs.values()
            for value in (item if isinstance(item, list) and tf.is_tensor(item[0]) else [item])
        ]
        positions = [i for i, value in enumerate(given) if tf.is_tensor(value)]
        fresh = {
            position: run(kind, inputs, attributes, order)[1]
            for order, position in enumerate(positions)
            if given[position].dtype.size * given[position].shape.num_elements() > 1 << 16
        }
        print(
            json.dumps(
                {
                    "kind": kind,
                    "inputs": [describe(tf.convert_to_tensor(value)) for value in given],
                    "values": {i: value for i, value in enumerate(given) if not tf.is_tensor(value)},
                    "attributes": {n: v.name if isinstance(v, tf.DType) else v for n, v in attributes.items()},
                    "outputs": [describe(tensor) for tensor in outputs],
                    "held": held,
                    "fresh": fresh,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
