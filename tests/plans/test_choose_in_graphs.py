"""The choice of blocks where layers are no chain, against brute force on small graphs."""

import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from test_choose_blocks import all_blocks

from legroom.plans.remat import Choice, Cost, Output, choose_blocks
from legroom.plans.remat_graph import choose, counted, least


@st.composite
def graphs(draw: st.DrawFn, most: int = 6) -> list[Cost]:
    """Segments that each make one tensor, read by some of the later ones; sizes as the chain's own counting has them."""
    count = draw(st.integers(2, most))
    inner = [draw(st.integers(0, 9)) for _ in range(count)]
    made = []
    for place in range(count):
        later = list(range(place + 1, count))
        readers = sorted(draw(st.sets(st.sampled_from(later), min_size=1))) if later else []
        holders = [reader for reader in readers if draw(st.booleans())]
        holders += [place] if draw(st.booleans()) else []
        made.append(Output(draw(st.integers(0, 20)), tuple(sorted(holders)), tuple(readers)))
    chain = []
    for place in range(count):
        alive = [one for maker, one in enumerate(made[:place]) if any(reader >= place for reader in one.read_by)]
        own = made[place]
        chain.append(
            Cost(
                kept_bytes=inner[place] + (own.size_bytes if own.held_by else 0),
                boundary_bytes=sum(one.size_bytes for one in alive),
                flops=draw(st.integers(0, 9)),
                shared_bytes=made[place - 1].size_bytes if place and made[place - 1].held_by else 0,
                needed_bytes=sum(one.size_bytes for one in made[:place] if place in one.held_by),
                recomputable=draw(st.sampled_from([True, True, True, False])),
                begins=draw(st.sampled_from([False, False, False, True])),
                outputs=(own,),
            )
        )
    return chain


@settings(deadline=None)
@given(graphs(), st.integers(0, 120))
def test_no_choice_within_the_budget_is_cheaper(chain, budget):
    possible = [counted(chain, blocks) for blocks in all_blocks(chain)]
    works = [choice.extra_flops for choice in possible if choice.peak_bytes <= budget]
    found = choose(chain, budget)
    assert (found is None) == (not works)
    if found is not None:
        assert found == counted(chain, found.blocks)
        assert found.peak_bytes <= budget
        assert found.extra_flops == min(works)


@settings(deadline=None)
@given(graphs())
def test_the_smallest_peak_is_found(chain):
    assert least(chain).peak_bytes == min(counted(chain, blocks).peak_bytes for blocks in all_blocks(chain))


@given(graphs())
def test_plain_segments_keep_the_same_by_either_counting(chain):
    assert counted(chain, ()) == Choice((), 0, *[sum(cost.kept_bytes for cost in chain)] * 2)


def test_what_a_skip_carries_is_kept_once_and_not_for_each_block():
    """Four segments and a tensor from the first to the last: the chain counts it at the start of every block between."""
    skip = Output(40, held_by=(3,), read_by=(1, 3))
    inner = Output(10, held_by=(2,), read_by=(2,)), Output(10, held_by=(3,), read_by=(3,))
    chain = [
        Cost(40, 0, 5, recomputable=False, outputs=(skip,)),
        Cost(30, 40, 5, shared_bytes=40, needed_bytes=0, outputs=(inner[0],)),
        Cost(30, 50, 5, shared_bytes=10, needed_bytes=10, outputs=(inner[1],)),
        Cost(20, 50, 5, shared_bytes=10, needed_bytes=50, outputs=(Output(0, (), ()),)),
    ]
    assert choose_blocks(chain, 100) is None
    found = choose(chain, 100)
    assert found is not None
    assert found.peak_bytes <= 100


def long_graph(count: int) -> list[Cost]:
    """Residual blocks of four, with a skip from each fourth segment to the one eight further on."""
    dice = random.Random(5)
    sizes = [dice.randrange(1, 100) for _ in range(count)]
    readers = [[place for place in (at + 1, at + 8 if at % 4 == 0 else at + 1) if place < count] for at in range(count)]
    outputs = [Output(sizes[at], tuple(sorted({*readers[at]})), tuple(sorted({*readers[at]}))) for at in range(count)]
    alive = [
        sum(sizes[maker] for maker in range(at) if readers[maker] and max(readers[maker]) >= at) for at in range(count)
    ]
    needed = [sum(sizes[maker] for maker in range(at) if at in readers[maker]) for at in range(count)]
    return [
        Cost(
            kept_bytes=sizes[at] + 20 if readers[at] else 20,
            boundary_bytes=alive[at],
            flops=dice.randrange(1, 10**6),
            needed_bytes=needed[at],
            outputs=(outputs[at],),
        )
        for at in range(count)
    ]


def test_two_hundred_segments_with_skips_take_seconds():
    chain = long_graph(200)
    plain = sum(cost.kept_bytes for cost in chain)
    started = time.process_time()
    found = choose(chain, plain // 2)
    assert time.process_time() - started < 20  # the aim is ten; other programs share the processor's cache
    assert found is not None
    assert found.peak_bytes <= plain // 2
