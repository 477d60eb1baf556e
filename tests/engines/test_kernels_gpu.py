"""The GPU kernels' temporaries against what an H200's allocator gave them: `bench/data/h200_op_temporaries.jsonl`, TensorFlow 2.21."""

import collections
import json
import pathlib
import sys
from typing import Any

import pytest

from legroom.engines.op.kernels_gpu import CONVOLUTIONS, RULES, output_sizes, temporaries
from legroom.engines.op.kernels_gpu_convolutions import buffers, computes_channels_last, is_matrix_product
from legroom.engines.op.kernels_gpu_geometry import arrays, read
from legroom.engines.op.ops import Array, Op
from legroom.gpus import find

BENCH = pathlib.Path(__file__).parents[2] / "bench"
ROWS = [json.loads(line) for line in (BENCH / "data" / "h200_op_temporaries.jsonl").read_text().splitlines()]
H200 = find("h200")
EXACT = (
    *("CudnnRNNV3", "CudnnRNNBackpropV3", "Softmax", "AvgPoolGrad", "MaxPool3D", "MaxPool3DGrad", "Einsum"),
    *("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput"),
)
CLOSE = 0.05
SMALL_BYTES = 2**20


def operation(row: dict[str, Any]) -> Op:
    attributes = {name: tuple(value) if isinstance(value, list) else value for name, value in row["attributes"].items()}
    if "values" in attributes:
        values = attributes["values"].items()
        attributes["values"] = {int(i): tuple(value) if isinstance(value, list) else value for i, value in values}
    inputs, outputs = (
        tuple(Array(tuple(shape), dtype) for shape, dtype in row[name]) for name in ("inputs", "outputs")
    )
    return Op("op", row["kind"], inputs, outputs, attributes)


def made(kind: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], dtype: str, **attributes: Any) -> Op:
    return Op("op", kind, tuple(Array(shape, dtype) for shape in inputs), (Array(output, dtype),), attributes)


def is_close(said_bytes: int, measured_bytes: int) -> bool:
    return abs(said_bytes - measured_bytes) <= max(CLOSE * measured_bytes, SMALL_BYTES)


def test_table_is_wide() -> None:
    kinds = collections.Counter(row["kind"] for row in ROWS)
    assert len(ROWS) >= 150
    assert set(kinds) <= set(RULES)
    assert len(kinds) >= 15
    assert len({row["case"].split(".")[0] for row in ROWS}) >= 20


@pytest.mark.parametrize("kind", EXACT)
def test_these_are_exact(kind: str) -> None:
    for row in ROWS:
        if row["kind"] == kind:
            said = sorted(temporaries(operation(row), H200), reverse=True)
            assert [size for size in said if size > 32] == [size for size in row["temporaries"] if size > 32]


def test_close_by_bytes() -> None:
    """Of all measured bytes those of the rows within 5 % or 1 MiB, and the sums of whole kinds."""
    close, measured, said = (collections.Counter[str]() for _ in range(3))
    for row in ROWS:
        real, guess = sum(row["temporaries"]), sum(temporaries(operation(row), H200))
        measured[row["kind"]] += real
        said[row["kind"]] += guess
        close[row["kind"]] += real * is_close(guess, real)
    assert close.total() >= 0.93 * measured.total()
    for kind, total in measured.items():
        assert close[kind] >= 0.8 * total, kind
        assert is_close(said[kind], total) or 0.9 <= said[kind] / total <= 1.15, kind


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions_take_what_tensorflow_itself_wants(kind: str) -> None:
    """All but cuDNN's workspace, which is the fastest algorithm's, is known to the byte."""
    for row in ROWS:
        if row["kind"] == kind:
            op = operation(row)
            x, filter_, y = arrays(op)
            one = read(op, x, filter_.shape, y)
            if is_matrix_product(one):
                assert row["temporaries"] == []
                continue
            own = buffers(one, one.channels_last and not computes_channels_last(one, H200))
            assert not collections.Counter(own) - collections.Counter(row["temporaries"]), row
            assert len(row["temporaries"]) <= len(own) + 1


def test_outputs_that_shapes_do_not_tell() -> None:
    rows = [row for row in ROWS if "sizes" in row]
    assert {row["attributes"]["rnn_mode"] for row in rows} == {"lstm", "gru"}
    for row in rows:
        assert output_sizes(operation(row), H200)[3] == row["sizes"]["3"]
    assert output_sizes(made("Relu", [(2, 2)], (2, 2), "float32"), H200) == {}


def test_matrix_products_take_nothing() -> None:
    image, result = (8, 14, 14, 256), (8, 14, 14, 512)
    op = made("Conv2D", [image, (1, 1, 256, 512)], result, "float32", strides=(1, 1, 1, 1), padding="SAME")
    assert temporaries(op, H200) == ()
    whole = made("Conv2D", [(8, 7, 7, 64), (7, 7, 64, 32)], (8, 1, 1, 32), "float32", strides=(1,) * 4, padding="VALID")
    assert temporaries(whole, H200) == ()


def test_uneven_padding_takes_padded_images() -> None:
    """SAME, stride 2, 3 × 3, an even image: one row below and none above."""
    image, result, filter_ = (4, 32, 32, 64), (4, 16, 16, 64), (3, 3, 64, 64)
    padded = 4 * 33 * 33 * 64 * 2
    attributes: dict[str, Any] = {"strides": (1, 2, 2, 1), "padding": "SAME", "data_format": "NHWC"}
    forward = temporaries(made("Conv2D", [image, filter_], result, "bfloat16", **attributes), H200)
    assert padded in forward
    back = temporaries(made("Conv2DBackpropInput", [(4,), filter_, result], image, "bfloat16", **attributes), H200)
    assert padded in back
    assert 4 * 32 * 32 * 64 * 2 in back
    explicit = {**attributes, "padding": "EXPLICIT", "explicit_paddings": (0, 0, 1, 1, 1, 1, 0, 0)}
    assert padded not in temporaries(made("Conv2D", [image, filter_], result, "bfloat16", **explicit), H200)


def test_cards_without_tensor_cores_turn_everything() -> None:
    image, filter_ = (4, 32, 32, 64), (3, 3, 64, 128)
    attributes: dict[str, Any] = {"strides": (1, 1, 1, 1), "padding": "SAME", "data_format": "NHWC"}
    op = made("Conv2D", [image, filter_], (4, 32, 32, 128), "float32", **attributes)
    x, y, weights = 4 * 32 * 32 * 64 * 4, 4 * 32 * 32 * 128 * 4, 3 * 3 * 64 * 128 * 4
    assert sorted(temporaries(op, find("t4"))) == sorted((x, y, weights))
    assert temporaries(op, H200) == (weights,)
    half = made("Conv2D", [image, filter_], (4, 32, 32, 128), "bfloat16", **attributes)
    assert sorted(temporaries(half, find("t4"))) == sorted((x, y, weights) * 2)  # cast to float32, then turned


def test_reductions_by_turns_are_transposed() -> None:
    op = Op(
        "op",
        "Sum",
        (Array((4, 8, 8, 4, 16), "float32"), Array((3,), "int32")),
        (Array((4, 4), "float32"),),
        {"values": {1: (1, 2, 4)}},
    )
    assert temporaries(op, H200) == (4 * 8 * 8 * 4 * 16 * 4,)


@pytest.mark.parametrize("kind", sorted(RULES))
def test_empty_arrays_take_nothing_much(kind: str) -> None:
    rows = [row for row in ROWS if row["kind"] == kind and not kind.startswith("Cudnn")]
    for row in rows[:1]:
        emptied = {
            **row,
            "inputs": [
                [[0, *shape[1:]], dtype] if len(shape) > 1 else [shape, dtype] for shape, dtype in row["inputs"]
            ],
        }
        emptied["outputs"] = [[[0, *shape[1:]], dtype] for shape, dtype in row["outputs"]]
        assert sum(temporaries(operation(emptied), H200)) <= sum(row["temporaries"]) + SMALL_BYTES


def test_the_script_tells_temporaries_from_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(BENCH)])
    import op_temporaries

    events = [
        ["node", 1, "conv", "Conv2D"],
        ["tensor", 1, "conv", 10, 4096],
        ["tensor", 1, "conv", 11, 64],
        ["tensor", 1, "conv", 12, 512],
        ["drop", 1, 12],
        ["drop", 1, 11],
        ["node", 1, "relu", "Relu"],
        ["drop", 1, 10],
    ]
    assert op_temporaries.observe(events) == {"conv": ([64, 512], [4096])}
