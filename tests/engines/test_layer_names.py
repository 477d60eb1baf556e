"""From an operation's name to its layer."""

import pytest

from legroom.engines.layer_names import LayerNames, split_op_name


@pytest.mark.parametrize(
    ("op_name", "parts"),
    [
        ("jit(train_step)/jvp(conv2d_4)/conv_general_dilated", ("conv2d_4", "conv_general_dilated")),
        ("jit(train_step)/transpose(jvp(conv2d_4))/add_any", ("conv2d_4", "add_any")),
        ("jit(train_step)/jvp(encoder/block)/relu/max", ("encoder", "block", "relu", "max")),
        ("jit(f)/jvp(dense)/jit(relu)/max", ("dense", "max")),
        ("gradient_tape/resnet50_1/conv1_conv_1/Conv2D", ("gradient_tape", "resnet50_1", "conv1_conv_1", "Conv2D")),
        ("", ()),
    ],
)
def test_split(op_name, parts):
    assert split_op_name(op_name) == parts


def test_jax_names_are_taken_as_they_are():
    layers = ("conv2d", "conv2d_1", "relu")
    names = ["jit(s)/jvp(conv2d)/x", "jit(s)/jvp(conv2d_1)/x", "jit(s)/jvp(conv2d_1)/jit(relu)/max"]
    assert [LayerNames(layers, names).find(n) for n in names] == ["conv2d", "conv2d_1", "conv2d_1"]


def test_tensorflow_numbers_the_names_anew():
    """`conv2d_1` is the layer `conv2d` there, and `conv2d_1_2` is `conv2d_1`."""
    layers = ("conv2d", "conv2d_1", "conv2d_2")
    names = [
        "sequential_1/conv2d_1/convolution",
        "gradient_tape/sequential_1/conv2d_1_2/BiasAdd",
        "sequential_1/conv2d_2_1/Relu",
    ]
    assert [LayerNames(layers, names).find(n) for n in names] == ["conv2d", "conv2d_1", "conv2d_2"]


def test_the_deepest_layer_wins_and_its_path_decides():
    layers = ("block_1", "block_1/conv", "block_2", "block_2/conv")
    names = ["m_1/block_1_1/conv_1/x", "m_1/block_2_1/conv_1/x", "m_1/block_2_1/add"]
    assert [LayerNames(layers, names).find(n) for n in names] == ["block_1/conv", "block_2/conv", "block_2"]


def test_other_parts_may_stand_between_those_of_a_path():
    assert (
        LayerNames(("gru/gru_cell",), []).find("jit(s)/jvp(gru)/while/body/closed_call/gru_cell/dot_general")
        == "gru/gru_cell"
    )


def test_joined_names_take_the_first_that_is_known():
    assert LayerNames(("dense",), []).find("AddN_3;gradient_tape/dense/MatMul") == "dense"


def test_unknown_operations_belong_to_none():
    names = LayerNames(("dense",), [])
    assert names.find("jit(train_step)/adam/sub") == ""
    assert names.find("") == ""
