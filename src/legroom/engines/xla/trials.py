"""What XLA tries on the card before the first step: the calls that it times, and what they want of memory meanwhile.

For each convolution and matrix product it takes copies of what goes in (with 16 MiB of guard around each), its result twice, and what the algorithm asks for.
Where that finds no room the algorithm is left out, but the second result stays behind for good (seen in the allocator's dumps on an H200): a hole that the
temporaries of the step may miss. cuDNN's hungriest algorithm is the one by Fourier's transform, which the card asked 17.7 GiB for in an Xception; a product's workspace is 32 MiB.
"""

from collections.abc import Iterable
from math import ceil, prod

from legroom.engines.xla.convolutions import Convolution, Question, read_convolution
from legroom.engines.xla.hlo_text import HloModule
from legroom.records.program import Trial
from legroom.units import MIB

PRODUCTS = ("__cublas$gemm", "__cublas$lt$matmul")
PRODUCT_SCRATCH_BYTES = 32 * MIB
COMPLEX_BYTES = 8
LARGEST_TRANSFORM, TILE = 256, 32  # what cuDNN transforms at once, and in tiles of what
OTHER_TIMES = 20  # with one dimension or three, of the largest array: the most that any algorithm was seen to want but for the transform's filters


def trials_of(module: HloModule, questions: Iterable[Question]) -> tuple[Trial, ...]:
    """All that differ, convolutions first, as XLA comes to them."""
    convolutions = (read_convolution(question.hlo) for question in questions)
    found = [trial_of(convolution) for convolution in convolutions if convolution is not None]
    for computation in module.computations.values():
        for call in computation.instructions:
            if call.target.startswith(PRODUCTS):
                operands = [operand.size_bytes for operand in computation.operands_of(call)]
                found.append(Trial(tuple(operands), call.shapes[0].size_bytes, PRODUCT_SCRATCH_BYTES))
    return tuple(dict.fromkeys(found))


def trial_of(convolution: Convolution) -> Trial:
    x, y, kernel = convolution.x.size_bytes, convolution.y.size_bytes, convolution.filter.size_bytes
    inputs, output = {"BackwardFilter": ((x, y), kernel), "BackwardInput": ((y, kernel), x)}.get(
        convolution.kind, ((x, kernel), y)
    )
    return Trial(inputs, output, transform_bytes(convolution))


def transform_bytes(convolution: Convolution) -> int:
    """What the algorithm by Fourier's transform asks for: both images and the filter, transformed. It knows no strides and no groups."""
    if convolution.strided or convolution.grouped or convolution.dilated_filter:
        return 0
    if len(convolution.kernel) != len(convolution.spatial):
        return 0
    if len(convolution.spatial) != 2:
        largest = max(convolution.x.size_bytes, convolution.y.size_bytes)
        return OTHER_TIMES * largest if max(convolution.kernel) > 1 else 0
    images = convolution.batch * (convolution.x_channels + convolution.y_channels)
    filters = convolution.x_channels * convolution.y_channels
    sides = [size + kernel - 1 for size, kernel in zip(convolution.spatial, convolution.kernel, strict=True)]
    if max(sides) <= LARGEST_TRANSFORM:
        return COMPLEX_BYTES * prod(1 << (side - 1).bit_length() for side in sides) * (images + filters)
    tiles = prod(
        ceil(size / max(1, TILE - kernel + 1))
        for size, kernel in zip(convolution.spatial, convolution.kernel, strict=True)
    )
    return COMPLEX_BYTES * TILE * TILE * (images * tiles + filters)
