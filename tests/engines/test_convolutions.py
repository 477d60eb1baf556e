"""The scratch memory of convolutions: reading XLA's log, the sizes, and the file that XLA reads back."""

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.engines.xla.convolutions import (
    SMALLEST_BYTES,
    TILE_BYTES,
    read_convolution,
    read_questions,
    tuned_bytes,
    workspace_bytes,
    write_results,
)
from legroom.gpus import find
from legroom.units import MIB

H200, T4 = find("h200"), find("t4")
LOG = """
I0000 autotuner_util.cc:1] Autotune cache miss: key = <key model='CUDA: 9.0, Cores: 132', hlo='{hlo}', version=21>
I0000 something else
I0000 autotuner_util.cc:1] Autotune cache miss: key = <key model='CUDA: 9.0, Cores: 132', hlo='{hlo}', version=21>
I0000 autotuner_util.cc:1] Autotune cache miss: key = <key model='CUDA: 9.0, Cores: 132', hlo='f32[8,8] custom-call(), custom_call_target="__cublas$gemm"', version=21>
"""


def call(kind="Forward", *, x=64, y=128, dtype="f32", batch=32, side=28, kernel="3x3", extra=""):
    image, result = (f"{dtype}[{batch},{side},{side},{c}]{{3,2,1,0}}" for c in (x, y))
    filters = f"{dtype}[{y},3,3,{x}]{{3,2,1,0}}"
    out, operands = {
        "Forward": (result, f"{image}, {filters}"),
        "BackwardInput": (image, f"{result}, {filters}"),
        "BackwardFilter": (filters, f"{image}, {result}"),
    }[kind]
    window = f"window={{size={kernel} pad=1_1x1_1{extra}}}"
    return f'({out}, u8[0]{{0}}) custom-call({operands}), {window}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$conv{kind}", backend_config={{}}'


def size(text, gpu=H200):
    return workspace_bytes(read_convolution(text), gpu)


def test_each_convolution_in_the_log_is_asked_once():
    (question,) = read_questions(LOG.format(hlo=call()))
    assert (question.device, question.version) == ("CUDA: 9.0, Cores: 132", 21)


@pytest.mark.parametrize("kind", ["Forward", "BackwardInput", "BackwardFilter"])
def test_image_result_and_filter_are_told_apart(kind):
    read = read_convolution(call(kind, x=64, y=128))
    assert (read.x_channels, read.y_channels, read.kernel) == (64, 128, (3, 3))
    assert read.filter.dims == (128, 3, 3, 64)


def test_aligned_channels_need_next_to_nothing():
    assert size(call("Forward")) == SMALLEST_BYTES


def test_a_filters_gradient_has_a_tile_for_each_multiprocessor():
    assert size(call("BackwardFilter")) == 132 * TILE_BYTES


def test_three_channels_are_padded_in_a_copy():
    image = 32 * 28 * 28 * 3
    assert size(call("Forward", x=3)) == 4 * image + SMALLEST_BYTES
    assert size(call("Forward", x=3, dtype="bf16")) == 2 * image // 3 * 8 + SMALLEST_BYTES


def test_without_tensor_cores_a_filters_gradient_is_transformed():
    read = read_convolution(call("BackwardFilter"))
    both = read.x.size_bytes + read.y.size_bytes
    assert size(call("BackwardFilter"), T4) == 2.25 * both + 4 * read.filter.size_bytes
    assert size(call("BackwardFilter", kernel="5x5"), T4) == 0


def test_channels_first_are_turned_in_a_copy():
    text = call("BackwardInput").replace("b01f_o01i->b01f", "bf01_oi01->bf01")
    read = read_convolution(text)
    assert not read.channels_last
    assert size(text) == read.x.size_bytes + read.y.size_bytes + read.filter.size_bytes


def test_half_precision_has_tensor_cores_on_a_t4():
    assert size(call("BackwardFilter", dtype="f16"), T4) == 40 * TILE_BYTES


@given(
    kind=st.sampled_from(["Forward", "BackwardInput", "BackwardFilter"]), x=st.integers(1, 300), y=st.integers(1, 300),
    dtype=st.sampled_from(["f32", "bf16", "f16"]), kernel=st.sampled_from(["1x1", "3x3", "7x7", "1x9"]),
)  # fmt: skip
def test_no_workspace_is_larger_than_padded_operands_and_tiles(kind, x, y, dtype, kernel):
    read = read_convolution(call(kind, x=x, y=y, dtype=dtype, kernel=kernel))
    padded = 16 * (read.x.size_bytes + read.y.size_bytes)
    assert 0 < workspace_bytes(read, H200) <= padded + 132 * TILE_BYTES


def test_the_results_carry_the_key_word_for_word():
    questions = read_questions(LOG.format(hlo=call("BackwardFilter")))
    text = write_results(questions, H200)
    assert text.startswith("version: 3\n")
    assert call("BackwardFilter").replace('"', '\\"') in text
    assert f"value: {132 * TILE_BYTES}" in text


def test_nothing_to_say_is_no_file():
    assert write_results(read_questions(LOG.format(hlo=call())), T4) is None


def test_a_call_of_another_kind_is_left_alone():
    assert read_convolution('f32[8,8] custom-call(), custom_call_target="__cudnn$convGraph"') is None


def test_nearly_all_workspaces_measured_with_tensor_cores_are_met():
    data = pathlib.Path(__file__).parents[2] / "bench" / "data" / "h200_workspaces.jsonl"
    rows = [row for row in map(json.loads, data.read_text().splitlines()) if row["tf32"]]
    said = [(workspace_bytes(read_convolution(row["hlo"]), H200), row["workspace_bytes"]) for row in rows]
    near = [abs(guess - real) <= max(20 * MIB, 0.15 * real) for guess, real in said]
    assert len(near) > 1000
    assert sum(near) >= 0.98 * len(near)


@pytest.mark.parametrize(
    ("text", "size"),
    [(call(), 32 * 28 * 28 * 128 * 4), (call(kernel="1x1"), 0), (call(extra=" stride=2x2"), 0)],
)
def test_only_convolutions_that_can_be_transformed_are_tried_with_large_workspaces(text, size):
    assert tuned_bytes(read_questions(LOG.format(hlo=text))) == size
