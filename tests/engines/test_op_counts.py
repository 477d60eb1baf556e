"""How much work an op is."""

import pytest

from legroom.engines.op.op_counts import flops
from legroom.engines.op.ops import Array, Op


def op(kind, *shapes, **attributes):
    *inputs, output = (Array(shape, "float32") for shape in shapes)
    return Op("", kind, tuple(inputs), (output,), attributes)


@pytest.mark.parametrize(
    ("equation", "shapes", "count"),
    [
        ("ab,bc->ac", ((3, 4), (4, 5), (3, 5)), 2 * 3 * 4 * 5),
        ("aecd,abcd->acbe", ((8, 6, 2, 5), (8, 7, 2, 5), (8, 2, 7, 6)), 2 * 8 * 6 * 7 * 2 * 5),
        ("acbe,aecd->abcd", ((8, 2, 7, 6), (8, 6, 2, 5), (8, 7, 2, 5)), 2 * 8 * 2 * 7 * 6 * 5),
        ("...b,bc->...c", ((9, 3, 4), (4, 5), (9, 3, 5)), 2 * 9 * 3 * 4 * 5),
        ("a...b,...bc->a...c", ((9, 3, 4), (3, 4, 5), (9, 3, 5)), 2 * 9 * 3 * 4 * 5),
        ("ab->a", ((3, 4), (3,)), 0),
    ],
)
def test_an_einsum_is_every_combination_of_its_labels(equation, shapes, count):
    assert flops(op("Einsum", *shapes, equation=equation)) == count


def test_products_of_matrices_alone_and_in_batches():
    assert flops(op("MatMul", (3, 4), (4, 5), (3, 5))) == 2 * 3 * 4 * 5
    assert flops(op("BatchMatMulV2", (7, 3, 4), (7, 4, 5), (7, 3, 5))) == 7 * 2 * 3 * 4 * 5


def test_channels_that_are_convolved_apart_see_one_channel_each():
    whole, apart = ((2, 8, 8, 6), (3, 3, 6, 4), (2, 8, 8, 4)), ((2, 8, 8, 6), (3, 3, 6, 1), (2, 8, 8, 6))
    assert flops(op("Conv2D", *whole)) == 2 * 9 * 6 * 2 * 8 * 8 * 4
    assert flops(op("DepthwiseConv2dNative", *apart)) == 2 * 9 * 2 * 8 * 8 * 6
    image, kernel, result = apart
    assert flops(op("DepthwiseConv2dNativeBackpropInput", (4,), kernel, result, image)) == 2 * 9 * 2 * 8 * 8 * 6
    assert flops(op("DepthwiseConv2dNativeBackpropFilter", image, (4,), result, kernel)) == 2 * 9 * 2 * 8 * 8 * 6
