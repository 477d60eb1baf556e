"""CUDA's own pool, simulated: whatever is free can be used, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.engines.bfc import Bfc, OutOfMemory
from legroom.engines.cuda_pool import ALIGNMENT_BYTES, CudaPool

SIZES = st.lists(st.tuples(st.integers(1, 5000), st.booleans()), max_size=60)


@given(SIZES, st.integers(1, 100_000))
def test_it_is_out_of_memory_where_and_only_where_less_is_free_than_is_asked_for(asked, limit):
    pool, live, most = CudaPool(limit), {}, 0
    for size, keep in asked:
        rounded = -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if rounded > limit - sum(live.values()):
            with pytest.raises(OutOfMemory) as told:
                pool.allocate(size)
            assert not told.value.shortage.fragmented
            continue
        address = pool.allocate(size)
        live[address] = rounded
        most = max(most, sum(live.values()))
        if not keep:
            gone = next(iter(live))
            pool.free(gone)
            del live[gone]
        assert pool.in_use_bytes == sum(live.values())
    assert pool.peak_in_use_bytes == most


def test_what_tears_another_pool_is_no_matter():
    def fill(pool):
        held = [pool.allocate(4096) for _ in range(8)]
        for address in held[::2]:
            pool.free(address)
        pool.allocate(16384)

    fill(CudaPool(8 * 4096))
    with pytest.raises(OutOfMemory) as told:
        fill(Bfc(8 * 4096, growth=False))
    assert told.value.shortage.fragmented


def test_pieces_lie_apart_so_that_they_can_be_drawn():
    pool = CudaPool(10**9)
    one = pool.allocate(1000)
    assert pool.allocate(1) >= one + 1024
