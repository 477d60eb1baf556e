"""The simulated allocator's laws on made-up programs, and its rules of growth one by one."""

from contextlib import suppress
from itertools import groupby, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legroom.engines.bfc import Bfc, OrderedMemory, OutOfMemory
from legroom.engines.op.replay import replay

KIB = 2**10
MIB = 2**20

law = settings(max_examples=40, deadline=None)

# Drawn at random, most limits are too small for most sizes: these make regions, holes and failures alike.
limits = st.sampled_from([100 * KIB, 9 * MIB, 30 * MIB + 77, 48 * MIB, 100 * MIB])
sizes = st.builds(
    int.__add__, st.sampled_from([0, 900, 4 * KIB, 100 * KIB, MIB, 3 * MIB, 7 * MIB]), st.integers(1, KIB)
)
moves = st.lists(
    st.tuples(st.sampled_from(["allocate", "allocate", "free"]), sizes, st.integers(0, 10**6)), min_size=30, max_size=60
)
allocators = st.builds(
    lambda limit, growth, collection, fraction, descending, coalesces: Bfc(
        limit,
        growth=growth,
        garbage_collection=collection,
        fragmentation_fraction=fraction,
        memory=OrderedMemory(descending=descending, coalesces=coalesces),
    ),
    limits,
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.001, 0.1]),
    st.booleans(),
    st.booleans(),
)


def play(bfc, moves):
    """Makes the moves, and yields after each; a free takes any live address, an allocation that fails is left out."""
    live = []
    for kind, size, choice in moves:
        if kind == "free" and live:
            bfc.free(live.pop(choice % len(live)))
        elif kind == "allocate":
            with suppress(OutOfMemory):
                live.append(bfc.allocate(size))
        yield live


def rounded(size):
    return (size + 255) // 256 * 256


def holes(bfc):
    return [chunk for chunk in bfc.chunks() if not chunk.in_use]


def sizes_of_regions(bfc):
    return [size for _, size in bfc.regions]


@law
@given(allocators, moves)
def test_chunks_tile_the_regions(bfc, moves):
    for live in play(bfc, moves):
        tiles = {i: list(chunks) for i, chunks in groupby(bfc.chunks(), key=lambda chunk: chunk.region)}
        assert sorted(tiles) == list(range(len(bfc.regions)))
        assert all(start + size <= after for (start, size), (after, _) in pairwise(bfc.regions))
        for i, (start, size) in enumerate(bfc.regions):
            assert tiles[i][0].address == start
            assert sum(chunk.size_bytes for chunk in tiles[i]) == size
            assert all(one.address + one.size_bytes == two.address for one, two in pairwise(tiles[i]))
        assert {chunk.address for chunk in bfc.chunks() if chunk.in_use} == set(live)


@law
@given(allocators, moves)
def test_the_counts_are_the_sums_of_the_chunks(bfc, moves):
    for _ in play(bfc, moves):
        assert bfc.in_use_bytes == sum(chunk.size_bytes for chunk in bfc.chunks() if chunk.in_use)
        assert bfc.free_bytes == sum(chunk.size_bytes for chunk in holes(bfc))
        assert bfc.reserved_bytes == sum(sizes_of_regions(bfc))
        assert bfc.largest_free_bytes == max((chunk.size_bytes for chunk in holes(bfc)), default=0)


@law
@given(allocators, moves)
def test_no_two_holes_touch_within_a_region(bfc, moves):
    for _ in play(bfc, moves):
        for one, two in pairwise(bfc.chunks()):
            assert one.in_use or two.in_use or one.region != two.region


@law
@given(allocators, moves)
def test_everything_freed_leaves_one_hole_a_region(bfc, moves):
    *_, live = [], *play(bfc, moves)
    for address in live:
        bfc.free(address)
    assert [(chunk.address, chunk.size_bytes) for chunk in bfc.chunks()] == list(bfc.regions)


@law
@given(allocators, moves, sizes)
def test_the_smallest_hole_that_fits_is_taken_and_of_equals_the_first(bfc, moves, size):
    for _ in play(bfc, moves):
        pass
    fitting = [(chunk.size_bytes, chunk.address) for chunk in holes(bfc) if chunk.size_bytes >= rounded(size)]
    if fitting:
        assert bfc.allocate(size) == min(fitting)[1]


@law
@given(st.integers(1, 8 * MIB), st.integers(1, 8 * MIB), st.sampled_from([0.0, 0.01, 0.1]))
def test_a_hole_is_split_where_that_saves_half_of_it_or_the_most_waste(hole, size, fraction):
    bfc = Bfc(64 * MIB, growth=False, fragmentation_fraction=fraction)
    address = bfc.allocate(hole)
    bfc.allocate(1)
    bfc.free(address)
    hole, needed = rounded(hole), rounded(size)
    if needed <= hole:
        split = hole >= 2 * needed or hole - needed >= (int(fraction * 64 * MIB) or 128 * MIB)
        assert bfc.chunk_bytes(bfc.allocate(size)) == (needed if split else hole)


@pytest.mark.parametrize(("size", "taken"), [(172 * MIB, 172 * MIB), (172 * MIB + 256, 300 * MIB)])
def test_by_default_128_mib_are_too_much_to_waste(size, taken):
    bfc = Bfc(300 * MIB, growth=False)
    assert bfc.chunk_bytes(bfc.allocate(size)) == taken


@law
@given(allocators, moves)
def test_the_limit_holds(bfc, moves):
    for _ in play(bfc, moves):
        assert bfc.in_use_bytes <= bfc.reserved_bytes <= bfc.peak_reserved_bytes <= bfc.limit_bytes


@law
@given(allocators, moves, sizes)
def test_it_fails_only_without_a_hole_and_without_room_to_grow(bfc, moves, size):
    for _ in play(bfc, moves):
        pass
    hole, room = bfc.largest_free_bytes, (bfc.limit_bytes - bfc.reserved_bytes) // 256 * 256
    shortage = None
    try:
        bfc.allocate(size)
    except OutOfMemory as error:
        shortage = error.shortage
    if shortage is not None:
        assert rounded(size) > max(hole, room)
        assert shortage.largest_free_bytes == hole
        assert shortage.free_bytes == bfc.limit_bytes - bfc.in_use_bytes


@law
@given(allocators, moves)
def test_the_peak_is_the_most_that_was_in_use(bfc, moves):
    most = max((bfc.in_use_bytes for _ in play(bfc, moves)), default=0)
    assert bfc.peak_in_use_bytes == most


def test_the_peak_starts_again_from_what_is_in_use():
    bfc = Bfc(MIB)
    kept, dropped = bfc.allocate(1000), bfc.allocate(5000)
    bfc.free(dropped)
    bfc.reset_peak()
    assert bfc.peak_in_use_bytes == bfc.in_use_bytes == bfc.chunk_bytes(kept) == 1024


@pytest.mark.parametrize("size", [0, -1])
def test_nothing_cannot_be_allocated(size):
    with pytest.raises(ValueError, match=str(size)):
        Bfc(MIB).allocate(size)


def test_one_pool_is_taken_whole_at_the_first_allocation():
    bfc = Bfc(64 * MIB + 100, growth=False)
    assert bfc.reserved_bytes == 0
    bfc.allocate(1)
    assert sizes_of_regions(bfc) == [64 * MIB]


def test_regions_double_and_the_last_one_is_what_the_limit_leaves():
    bfc = Bfc(20 * MIB)
    for _ in range(20):
        bfc.allocate(MIB)
    assert sizes_of_regions(bfc) == [2 * MIB, 4 * MIB, 8 * MIB, 6 * MIB]


def test_a_large_request_doubles_the_next_region_until_it_fits_and_no_further():
    bfc = Bfc(100 * MIB)
    bfc.allocate(1)
    bfc.allocate(9 * MIB)
    bfc.allocate(10 * MIB)
    bfc.allocate(10 * MIB)
    assert sizes_of_regions(bfc) == [2 * MIB, 16 * MIB, 16 * MIB, 32 * MIB]


def test_a_refused_region_shrinks_by_a_tenth_at_a_time():
    bfc = Bfc(64 * MIB, growth=False, memory=OrderedMemory(60 * MIB))
    bfc.allocate(1)
    assert sizes_of_regions(bfc) == [60398080]  # 0.9f · 64 MiB = 60397977.6, in 256s


def test_a_refused_region_never_shrinks_below_the_request():
    bfc = Bfc(64 * MIB, memory=OrderedMemory(10 * MIB))
    with pytest.raises(OutOfMemory):
        bfc.allocate(11 * MIB)
    assert bfc.reserved_bytes == 0


def test_a_refusal_of_the_last_few_bytes_ends():
    with pytest.raises(OutOfMemory):
        Bfc(MIB, memory=OrderedMemory(0)).allocate(1)


def grown(*, freed=(0, 1), **options):
    """Regions of 2, 4 and 8 MiB of 16, the first two of them free and side by side, the third full."""
    bfc = Bfc(16 * MIB, **options)
    addresses = [bfc.allocate(2 * MIB), bfc.allocate(4 * MIB), bfc.allocate(8 * MIB)]
    for i in freed:
        bfc.free(addresses[i])
    return bfc


def test_free_regions_go_back_where_a_larger_one_is_needed():
    bfc = grown(garbage_collection=True, memory=OrderedMemory(16 * MIB))
    bfc.allocate(7 * MIB)
    assert sizes_of_regions(bfc) == [8 * MIB, 8 * MIB]
    assert bfc.peak_reserved_bytes == 16 * MIB


def test_free_regions_stay_where_giving_them_back_would_not_help():
    bfc = grown(garbage_collection=True)
    with pytest.raises(OutOfMemory):
        bfc.allocate(9 * MIB)
    assert sizes_of_regions(bfc) == [2 * MIB, 4 * MIB, 8 * MIB]


def test_without_garbage_collection_free_regions_are_lost_to_a_larger_request():
    bfc = grown()
    with pytest.raises(OutOfMemory) as error:
        bfc.allocate(7 * MIB)
    assert error.value.shortage.fragmented
    assert error.value.shortage.largest_free_bytes == 4 * MIB


def test_too_few_bytes_are_not_called_fragmentation():
    bfc = grown()
    with pytest.raises(OutOfMemory) as error:
        bfc.allocate(9 * MIB)
    assert not error.value.shortage.fragmented


@pytest.mark.parametrize("freed", [(0, 1), (1, 0)])
def test_regions_that_touch_stay_apart(freed):
    bfc = grown(freed=freed)
    assert [chunk.size_bytes for chunk in holes(bfc)] == [2 * MIB, 4 * MIB]


def test_a_region_may_come_back_where_two_others_were():
    class Reusing(OrderedMemory):
        def release(self, address, size_bytes):
            self._next = 0

    bfc = Bfc(6 * MIB, garbage_collection=True, memory=Reusing())
    for address in [bfc.allocate(2 * MIB), bfc.allocate(4 * MIB)]:
        bfc.free(address)
    bfc.free(bfc.allocate(5 * MIB))
    for address in [bfc.allocate(2 * MIB), bfc.allocate(MIB)]:
        bfc.free(address)
    assert [chunk.size_bytes for chunk in bfc.chunks()] == [6 * MIB]


def test_regions_that_touch_become_one_where_the_memory_coalesces():
    bfc = grown(memory=OrderedMemory(coalesces=True))
    assert sizes_of_regions(bfc) == [14 * MIB]
    assert bfc.largest_free_bytes == 6 * MIB


def test_a_replay_names_the_first_failure():
    events = [("a", MIB, "conv"), ("b", 2 * MIB, "dense"), ("c", 3 * MIB, "loss")]
    result = replay(events, Bfc(2 * MIB, growth=False))
    assert result.failure.event == 1
    assert result.failure.label == "dense"
    assert result.failure.shortage.requested_bytes == 2 * MIB
    assert result.events == 2


def test_a_replay_that_goes_on_takes_nothing_for_what_failed():
    events = [("a", MIB, ""), ("b", 2 * MIB, ""), ("b", None, ""), ("a", None, ""), ("c", 2 * MIB, "")]
    result = replay(events, Bfc(2 * MIB, growth=False), stop_at_failure=False)
    assert result.events == 5
    assert result.in_use_bytes == result.peak_in_use_bytes == 2 * MIB


def test_a_replay_that_goes_on_keeps_the_first_failure():
    events = [("a", 3 * MIB, "first"), ("b", 4 * MIB, "second")]
    assert replay(events, Bfc(2 * MIB), stop_at_failure=False).failure.label == "first"


def test_a_replay_finds_the_event_of_the_peak():
    events = [("a", 1000, ""), ("b", 5000, ""), ("b", None, ""), ("empty", 0, ""), ("empty", None, ""), ("b", 3000, "")]
    result = replay(events, Bfc(MIB))
    assert result.peak_event == 1
    assert result.peak_in_use_bytes == 1024 + 5120
