"""Buffers that are shared or taken over: the tables by themselves, and against the real kernels under the BFC allocator."""

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from legroom.engines.op.kernels_cpu import temporaries
from legroom.engines.op.ops import Array, Op
from legroom.engines.op.sharing import COPY_ON_READ, KNOWN, holds, lends, may_reuse, on_host, shares, updates

WORKER = pathlib.Path(__file__).parent / "sharing_worker.py"
WIDE = Array((64, 1024), "float32")


def op(kind: str, inputs: list[Array], outputs: list[Array], **attributes: Any) -> Op:
    return Op("op", kind, tuple(inputs), tuple(outputs), attributes)


@pytest.fixture(scope="module")
def seen() -> list[dict[str, Any]]:
    environment = {
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_CPU_ALLOCATOR_USE_BFC": "1",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": "1000",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": "bfc_allocator=3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    work = subprocess.run(
        [sys.executable, str(WORKER)], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert work.returncode == 0, work.stderr[-2000:]
    peaks = read_peaks(work.stderr)
    rows = [json.loads(line) for line in work.stdout.splitlines()]
    for row in rows:
        row["held"] = peaks[row["held"]]
        row["fresh"] = {position: peaks[number] for position, number in row["fresh"].items()}
    return rows


def read_peaks(log: str) -> dict[int, int]:
    """The most bytes that were alive at once in each run that is marked in the log, of those it allocated."""
    peaks: dict[int, int] = {}
    run, alive = -1, 0
    for begin, end, allocated, freed in re.findall(
        r"^@@begin (\d+)|^@@(end)|AllocateRaw \S+ +(\d+) 0x|DeallocateRaw \S+ +(\d+)", log, re.MULTILINE
    ):
        if begin or end:
            run, alive = int(begin or -1), 0
        alive += int(allocated or 0) - int(freed or 0)
        peaks[run] = max(peaks.get(run, 0), alive)
    return peaks


def read(row: dict[str, Any]) -> Op:
    values = {int(position): value for position, value in row["values"].items()}
    inputs, outputs = ([Array(tuple(shape), dtype) for shape, dtype in row[side]] for side in ("inputs", "outputs"))
    return op(row["kind"], inputs, outputs, **row["attributes"], values=values)


@pytest.mark.tensorflow
def test_shares_agrees_with_tensorflow(seen: list[dict[str, Any]]) -> None:
    assert len(seen) >= 30
    for row in seen:
        operation = read(row)
        made = sum(a.size_bytes for i, a in enumerate(operation.outputs) if shares(operation, i) is None)
        made += sum(temporaries(operation, 2))
        assert row["held"] == pytest.approx(made, rel=0.01, abs=1 << 13), row


@pytest.mark.tensorflow
def test_may_reuse_agrees_with_tensorflow(seen: list[dict[str, Any]]) -> None:
    """An input that no one else reads: the peak is lower by an output that takes it over, or a temporary that it serves as."""
    tried = 0
    for row in seen:
        operation = read(row)
        for text, peak in row["fresh"].items():
            position = int(text)
            array = operation.inputs[position]
            taken = any(
                shares(operation, i) is None and position in may_reuse(operation, i) and output == array
                for i, output in enumerate(operation.outputs)
            )
            saved = taken or position in lends(operation)
            expected = row["held"] + (0 if saved else array.size_bytes)
            assert peak == pytest.approx(expected, rel=0.01, abs=1 << 13), (row, position)
            tried += 1
    assert tried >= 30


def test_either_input_is_tried_in_order() -> None:
    assert may_reuse(op("AddV2", [WIDE, WIDE], [WIDE]), 0) == (0, 1)
    assert may_reuse(op("AddN", [WIDE] * 3, [WIDE]), 0) == (0, 1, 2)
    assert may_reuse(op("SelectV2", [Array((64, 1), "bool"), WIDE, WIDE], [WIDE]), 0) == (1, 2)
    assert may_reuse(op("MatMul", [WIDE, WIDE], [WIDE]), 0) == ()


def test_loss_takes_the_logits_over_for_their_gradient() -> None:
    loss = op("SparseSoftmaxCrossEntropyWithLogits", [WIDE, Array((64,), "int64")], [Array((64,), "float32"), WIDE])
    assert [may_reuse(loss, i) for i in (0, 1)] == [(), (0,)]


def test_pooling_differs_by_device() -> None:
    pool = op("MaxPoolGrad", [WIDE, WIDE, WIDE], [WIDE])
    assert (may_reuse(pool, 0), lends(pool)) == ((0,), (1,))
    assert (may_reuse(pool, 0, "gpu"), lends(pool, "gpu")) == ((), ())


@pytest.mark.parametrize(("depth", "shared"), [(16, 0), (8, None), (3, None), (32, 0)])
def test_rows_are_shared_where_they_are_aligned(depth: int, shared: int | None) -> None:
    whole, part = Array((64, depth), "float32"), Array((16, depth), "float32")
    assert shares(op("SplitV", [whole, Array((4,), "int32"), Array((), "int32")], [part] * 4), 2) == shared
    assert shares(op("Slice", [whole, Array((2,), "int32"), Array((2,), "int32")], [part]), 0) == shared
    assert shares(op("StridedSlice", [whole, *[Array((1,), "int32")] * 3], [part]), 0) == shared
    row = op("StridedSlice", [whole, *[Array((1,), "int32")] * 3], [Array((depth,), "float32")], shrink_axis_mask=1)
    assert shares(row, 0) == shared
    assert shares(op("Unpack", [whole], [Array((depth,), "float32")] * 64, axis=0), 5) == shared


def test_a_column_is_copied() -> None:
    square = Array((64, 64), "float32")
    column = op("StridedSlice", [square, *[Array((2,), "int32")] * 3], [Array((64,), "float32")], shrink_axis_mask=2)
    assert shares(column, 0) is None


@pytest.mark.parametrize(
    ("begin", "size", "shared"), [(0, 16, 0), (16, 16, 0), (16, 84, None), (8, 24, None), (4, 28, None)]
)
def test_slices_of_vectors_need_their_place(begin: int, size: int, shared: int | None) -> None:
    arrays = [Array((1000,), "float32"), Array((1,), "int32"), Array((1,), "int32")], [Array((size,), "float32")]
    assert shares(op("Slice", *arrays, values={1: (begin,), 2: (size,)}), 0) == shared
    assert shares(op("Slice", *arrays), 0) is None


def test_transpositions_of_ones_share() -> None:
    arrays = [Array((1, 32, 32), "float32"), Array((3,), "int32")], [Array((32, 1, 32), "float32")]
    assert shares(op("Transpose", *arrays, values={1: (1, 0, 2)}), 0) == 0
    assert shares(op("Transpose", *arrays, values={1: (2, 0, 1)}), 0) is None
    assert shares(op("Transpose", *arrays), 0) is None


def test_each_output_of_identity_n_is_its_own_input() -> None:
    assert [shares(op("IdentityN", [WIDE] * 3, [WIDE] * 3), i) for i in range(3)] == [0, 1, 2]


def test_variables() -> None:
    handle = Array((), "resource")
    assert shares(op("ReadVariableOp", [handle], [WIDE]), 0) == 0
    assert updates(op("ResourceApplyAdam", [handle] * 3 + [WIDE] * 7, [])) == (0, 1, 2)
    assert updates(op("ResourceScatterAdd", [handle, WIDE, WIDE], [])) == (0,)
    assert updates(op("ReadVariableOp", [handle], [WIDE])) == ()
    assert holds(op("AssignVariableOp", [handle, WIDE], [])) == (1,)
    assert "ResourceGather" in COPY_ON_READ


def test_shapes_are_on_the_host() -> None:
    counts = Array((2,), "int32")
    assert on_host(op("Shape", [WIDE], [counts]), 0)
    assert on_host(op("Mul", [counts, counts], [counts]), 0)
    assert not on_host(op("Mul", [WIDE, WIDE], [WIDE]), 0)


def test_unknown_kinds_can_be_named() -> None:
    assert "Conv2D" in KNOWN
    assert "_FusedConv2D" in KNOWN
    assert "SomethingNew" not in KNOWN
    assert may_reuse(op("SomethingNew", [WIDE], [WIDE]), 0) == ()
    assert shares(op("SomethingNew", [WIDE], [WIDE]), 0) is None
