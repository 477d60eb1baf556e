"""Logs as they really are: cut, glued, interleaved, coloured, from Windows, and full of something else."""

import io
import re
import sys
from pathlib import Path

import pytest

import legroom
from legroom.explain.blocks import BLOCK_BYTES, read_blocks
from legroom.explain.diagnose import explain_stream
from legroom.explain.layers import layer_in
from legroom.explain.readers import PHRASES

sys.path.insert(0, str(Path(__file__).parent / "make_logs"))
from dumps import Dump, exception

LOGS = Path(__file__).parents[1] / "data" / "logs"
MIB = 1024**2
CHUNKS = [(96 * MIB, True)] * 30 + [(8 * MIB, True)] * 6 + [(4 * MIB, False)] * 2
TENSOR = [64, 64, 112, 112]
ASKED = 64 * 64 * 112 * 112 * 4
STAMPS = {
    "none": "",
    "absl": "W0000 00:00:1794725842.847569   23640 op_kernel.cc:1858] ",
    "glog": "W0401 13:06:14.983711 47484351229632 op_kernel.cc:142] ",
    "tensorflow": "2020-04-01 13:06:02.960895: W tensorflow/core/framework/op_kernel.cc:1655] ",
    "tensorflow 1.0": "W tensorflow/core/framework/op_kernel.cc:975] ",
    "windows": "2018-03-14 11:33:52.456418: W c:\\users\\u\\tensorflow\\core\\framework\\op_kernel.cc:1192] ",
    "logging": "2022-02-25 09:41:06,761 ERROR ",
    "ray": "(pid=24576) ",
    "docker": "2024-01-05T10:11:12.123456789Z ",
    "journal": "Jul 15 10:12:01 box python[4321]: ",
    "quoted": "> ",
    "elixir": "[error] ",
    "bar": " 12/500 [..............................] - ETA: 1:02:03 - loss: 2.3",
    "colours": "\x1b[1m\x1b[31m",
}


def gpu_dump(version="2.10"):
    dump = Dump(version, sum(size for size, _ in CHUNKS), CHUNKS, ASKED, "model/conv2d_7/Conv2D")
    return [*dump.lines(), *exception(dump, TENSOR, node="model/conv2d_7/Conv2D")], dump


@pytest.mark.parametrize("stamp", STAMPS.values(), ids=STAMPS)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_whatever_stands_before_a_line(stamp, end):
    said = "OOM when allocating tensor with shape[64,64,112,112] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
    found = legroom.explain(f"Epoch 1/5{end}{stamp}{said}{end}more{end}")
    assert (found.cause, found.tensor_shape, found.failed_bytes) == ("batch_or_activations", (64, 64, 112, 112), ASKED)
    assert (found.device, found.allocator, found.dtype) == ("GPU:0", "GPU_0_bfc", "float32")


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.6, 0.9, 0.98])
def test_a_dump_cut_at_its_beginning_or_its_end(share):
    lines, dump = gpu_dump()
    cut = int(share * len(lines))
    for kept in (lines[cut:], lines[:cut]):
        found = legroom.explain("\n".join(kept) + "\n")
        assert found.limit_bytes in (None, dump.limit)
        assert found.in_use_bytes in (None, dump.in_use)
        assert found.failed_bytes in (None, ASKED)


def test_two_threads_in_one_another():
    lines, _ = gpu_dump("2.21")
    other = Dump(
        "2.21", 512 * MIB, [(128 * MIB, True)] * 3 + [(128 * MIB, False)], 256 * MIB, "model/dense/MatMul", "GPU_1_bfc"
    )
    others = [line.replace("   23640 ", "   99999 ") for line in other.lines()]
    prefixed = [line for line in lines if re.match(r"[IW]0000", line)]
    mixed = [line for pair in zip(prefixed, others, strict=False) for line in pair if re.match(r"[IW]0000", line)]
    found = legroom.explain("\n".join(mixed) + "\n")
    assert found.allocator == "GPU_0_bfc"
    assert found.failed_bytes == ASKED


def test_megabytes_of_other_output_around_and_several_errors():
    lines, dump = gpu_dump()
    noise = "step 12345 loss 0.1234 accuracy 0.9876\n" * 60_000
    text = noise + "\n".join(lines) + "\n" + noise
    found = legroom.explain(text)
    assert (found.limit_bytes, found.in_use_bytes, found.largest_free_bytes) == (dump.limit, dump.in_use, 4 * MIB)
    assert found.causes[0].evidence[0].line > 60_000
    assert legroom.explain("\n".join(lines * 3)).incidents >= 3


def test_line_numbers_are_those_of_an_editor():
    text = "one\ntwo\r\x1b[Kstill two\nMemoryError: Unable to allocate 2.00 GiB for an array with shape (9000, 8) and data type float64\n"
    assert legroom.explain(text).causes[0].evidence[0].line == 3


def test_blocks_hold_whole_lines_and_count_them():
    text = b"".join(b"%d " % number + b"x" * (number % 200) + b"\n" for number in range(20_000))
    blocks = list(read_blocks(io.BytesIO(text), "a log"))
    assert b"".join(block.data for block in blocks) == text
    for block in blocks:
        assert block.data.startswith(b"%d " % (block.first_line - 1))
        assert len(block.data) < 2 * BLOCK_BYTES


def test_the_quick_look_passes_over_nothing():
    """Whatever a reader knows has a word and a sign by which its block is found."""
    words, signs = PHRASES.words(), PHRASES.signs()
    for phrase in PHRASES.strong:
        assert any(word in phrase for word in words), phrase
        assert any(sign in phrase for sign in signs), phrase


@pytest.mark.parametrize(
    ("op", "layer"),
    [
        ("model/conv2d_7/Conv2D", "conv2d_7"),
        ("gradient_tape/model_1/dense/MatMul", "dense"),
        ("training/Adam/gradients/conv2d_3/convolution_grad/Conv2DBackpropFilter", "conv2d_3"),
        ("training/Adam/Variable_12/Assign", None),
        ("dense_1/kernel/Initializer/random_uniform", "dense_1"),
        ("jit(train_step)/jit(main)/transpose(jvp(conv2d_4))/conv_general_dilated", "conv2d_4"),
        ("replica_1/xception/block2_sepconv1_bn/FusedBatchNorm", "block2_sepconv1_bn"),
        ("Mul", None),
        (None, None),
    ],
)
def test_the_layer_in_an_operations_name(op, layer):
    assert layer_in(op) == layer


def test_keras_3_names_are_numbered_twice():
    assert layer_in("resnet50_1/conv2_block2_3_conv_1/convolution", is_keras_3=True) == "conv2_block2_3_conv"


def test_the_real_log_of_a_gpu_is_full_rather_than_torn():
    """398 MiB are free and 392 were asked for: what is left would not hold the next layer."""
    with (LOGS / "h200_resnet50.log").open("rb") as stream:
        found = explain_stream(stream, "h200_resnet50.log")
    assert [cause.cause for cause in found.causes[:2]] == ["batch_or_activations", "fragmentation"]
    assert found.incidents == 2
