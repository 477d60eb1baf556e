"""The kernels' temporaries against what the real allocator gave them: `data/cpu_temporaries.jsonl`, measured on TensorFlow 2.21."""

import json
import pathlib
from typing import Any

import pytest

from legroom.engines.op.cpu_cache import machine_l3_cache_bytes
from legroom.engines.op.kernels_cpu import BEFORE_OUTPUTS, RULES, kept_dimensions, temporaries
from legroom.engines.op.ops import Array, Op
from legroom.engines.op.sharing import KNOWN

TABLE = pathlib.Path(__file__).parent / "data" / "cpu_temporaries.jsonl"
ROWS = [json.loads(line) for line in TABLE.read_text().splitlines()]
CONVOLUTIONS = ("Conv", "MatMul", "BatchMatMul", "Einsum", "_Fused")


def operation(row: dict[str, Any]) -> Op:
    attributes = {name: tuple(value) if isinstance(value, list) else value for name, value in row["attributes"].items()}
    attributes["values"] = {i: spec[2] for i, spec in enumerate(row["inputs"]) if len(spec) > 2}
    inputs = tuple(Array(tuple(shape), dtype) for shape, dtype, *_ in row["inputs"])
    return Op(
        "op", row["kind"], inputs, tuple(Array(tuple(shape), dtype) for shape, dtype in row["outputs"]), attributes
    )


def said(row: dict[str, Any]) -> tuple[int, ...]:
    return temporaries(operation(row), row["threads"], row.get("l3_cache_bytes"))


def test_table_is_wide() -> None:
    assert len(ROWS) >= 60
    assert {row["threads"] for row in ROWS} == {1, 2, 4, 8}
    assert {row["kind"] for row in ROWS} <= KNOWN


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["kind"].startswith(CONVOLUTIONS)], ids=lambda row: row["kind"]
)
def test_convolutions_and_products_are_exact(row: dict[str, Any]) -> None:
    assert sorted(said(row)) == sorted(row["temporaries"])


@pytest.mark.parametrize("row", [row for row in ROWS if "outputs_last" in row], ids=lambda row: row["kind"])
def test_outputs_are_taken_before_or_after_the_temporaries_as_was_seen(row: dict[str, Any]) -> None:
    assert (row["kind"] in BEFORE_OUTPUTS) is row["outputs_last"]


def test_both_orders_were_seen() -> None:
    assert {row.get("outputs_last") for row in ROWS} == {True, False, None}


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["kind"].startswith("Depthwise")], ids=lambda row: row["kind"]
)
def test_depthwise_is_an_upper_bound(row: dict[str, Any]) -> None:
    """How many threads hold their patch at once is a matter of luck; the buffers themselves are not."""
    assert set(row["temporaries"]) <= set(said(row))
    assert sum(row["temporaries"]) <= sum(said(row))
    assert max(row["temporaries"]) == max(said(row))


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if not row["kind"].startswith((*CONVOLUTIONS, "Depthwise"))],
    ids=lambda row: row["kind"],
)
def test_others_are_close(row: dict[str, Any]) -> None:
    real = sum(row["temporaries"])
    assert abs(sum(said(row)) - real) <= max(0.1 * real, 64 << 10)
    if row["kind"] not in ("ScaleAndTranslate", "ScaleAndTranslateGrad", "Multinomial", "StatelessMultinomial"):
        assert sorted(said(row)) == sorted(row["temporaries"])


def test_columns_do_not_grow_with_the_batch() -> None:
    def gradient(batch: int) -> Op:
        image, result = Array((batch, 64, 64, 3), "float32"), Array((batch, 64, 64, 8), "float32")
        kernel = Array((3, 3, 3, 8), "float32")
        return Op("dw", "Conv2DBackpropFilter", (image, Array((4,), "int32"), result), (kernel,))

    assert temporaries(gradient(1), 2) == temporaries(gradient(64), 2)
    assert sum(temporaries(gradient(1), 2)) > 20 << 20


def test_an_image_at_a_time_with_few_threads() -> None:
    image, kernel = Array((8, 16, 16, 32), "float32"), Array((3, 3, 32, 32), "float32")
    op = Op("dx", "Conv2DBackpropInput", (Array((4,), "int32"), kernel, image), (image,))
    one = 16 * 16 * 3 * 3 * 32 * 4
    assert temporaries(op, 1) == (one,)
    assert temporaries(op, 8) == (one * (-(-(30 << 18) // (16 * 16 * (288 + 32) + 288 * 32))),)


def test_cache_of_the_machine_counts_in_three_dimensions() -> None:
    image, kernel = Array((32, 16, 16, 16, 8), "float32"), Array((3, 3, 3, 8, 8), "float32")
    op = Op("dw", "Conv3DBackpropFilterV2", (image, Array((5,), "int32"), image), (kernel,))
    small, large = (sum(temporaries(op, 2, cache << 20)) for cache in (8, 32))
    assert 3 * small < large
    assert temporaries(op, 2) == temporaries(op, 2, machine_l3_cache_bytes())


def test_columns_too_large_in_three_dimensions_are_done_without() -> None:
    image, kernel = Array((2, 4, 4, 4, 1), "float32"), Array((3, 3, 3, 1, 1), "float32")
    op = Op("dw", "Conv3DBackpropFilterV2", (image, Array((5,), "int32"), image), (kernel,))
    assert temporaries(op, 2, 32 << 20) == ()


@pytest.mark.parametrize(
    ("shape", "output", "kept"),
    [
        ((2, 3, 4), (3,), [False, True, False]),
        ((8, 8, 8), (8,), [True, False, False]),
        ((2, 3, 4, 5), (2, 4), [True, False, True, False]),
        ((2, 3), (), [False, False]),
    ],
)
def test_axes_are_guessed_from_shapes(shape: tuple[int, ...], output: tuple[int, ...], kept: list[bool]) -> None:
    op = Op("sum", "Sum", (Array(shape, "float32"), Array((1,), "int32")), (Array(output, "float32"),))
    assert kept_dimensions(op) == kept


def test_axes_that_are_known_win() -> None:
    arrays = (Array((8, 8, 8, 8), "float32"), Array((2,), "int32")), (Array((8, 8), "float32"),)
    assert temporaries(Op("sum", "Sum", *arrays), 2) == ()
    assert temporaries(Op("sum", "Sum", *arrays, {"values": {1: (1, 3)}}), 2) == (8**4 * 4,)


def test_what_is_empty_or_unknown_takes_nothing() -> None:
    empty = Array((0, 8, 8, 4), "float32")
    kernel = Array((3, 3, 4, 4), "float32")
    for kind in ("Conv2DBackpropInput", "Conv2DBackpropFilter"):
        output = empty if kind.endswith("Input") else kernel
        assert temporaries(Op("op", kind, (empty, kernel, empty), (output,)), 2) == ()
    assert temporaries(Op("op", "SomethingNew", (empty,), (empty,)), 2) == ()
    assert set(RULES) <= KNOWN
