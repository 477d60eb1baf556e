"""Sizes that are those of all pairs of something, by arithmetic."""

import pytest

import legroom

LARGE, BATCH, OTHER = "tensor_too_large", "batch_or_activations", "host_ram_other"
ON_XLA = "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {} bytes."
ON_CPU = "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating {} bytes."
ON_HOST = "RuntimeError: DefaultCPUAllocator: not enough memory: you tried to allocate {} bytes."
ON_CUDA = "RuntimeError: CUDA out of memory. Tried to allocate {}."
PAIRS = {
    "a number in code": ("x = jnp.zeros(120_000)", ON_CPU.format(4 * 120_000**2), LARGE),
    "another type": ("n = 47000", ON_XLA.format(8 * 47_000**2), LARGE),
    "as a power of ten": ("points = torch.rand(int(1e5), 3)", ON_HOST.format(4 * 100_000**2), LARGE),
    "a shape": ("points.shape: (71000, 3)", ON_XLA.format(4 * 71_000**2), LARGE),
    "a rounded size": ("points = torch.rand(90000, 2)", ON_CUDA.format("30.17 GiB"), LARGE),
    "huge, and the number is not named": ("", ON_CPU.format(4 * 170_100**2), LARGE),
    "not huge, and the number is not named": ("", ON_XLA.format(4 * 47_000**2), BATCH),
    "another number": ("n = 52000", ON_XLA.format(4 * 47_000**2), BATCH),
    "small": ("n = 12000", ON_XLA.format(4 * 12_000**2), BATCH),
    "heads of tokens by tokens": ("", ON_XLA.format(2**36), BATCH),
    "tokens by tokens": ("x.shape (65536, 8)", ON_XLA.format(2 * 65_536**2), BATCH),
    "no square": ("n = 100000", ON_HOST.format(39_000_000_000), OTHER),
}


@pytest.mark.parametrize(("code", "failed", "cause"), PAIRS.values(), ids=PAIRS)
def test_all_pairs_of_something(code, failed, cause):
    assert legroom.explain(f"{code}\n{failed}\n").cause == cause


def test_a_square_tensor_is_no_kernel_of_a_layer():
    assert legroom.explain("OOM when allocating tensor with shape[52000,52000] and type float\n").cause == LARGE


def test_it_is_said_which_pairs():
    assert "47,000 × 47,000" in legroom.explain("n = 47000\n" + ON_XLA.format(8 * 47_000**2)).why
