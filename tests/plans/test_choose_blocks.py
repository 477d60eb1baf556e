"""The choice of blocks against brute force on short chains, and its speed on a long one."""

import itertools
import random
import time

from hypothesis import given
from hypothesis import strategies as st

from legroom.plans.remat import Choice, Cost, choose_blocks, described, smallest


@st.composite
def costs(draw: st.DrawFn) -> Cost:
    boundary = draw(st.integers(0, 12))
    return Cost(
        kept_bytes=draw(st.integers(0, 20)),
        boundary_bytes=boundary,
        flops=draw(st.integers(0, 9)),
        shared_bytes=draw(st.integers(0, boundary)),
        needed_bytes=draw(st.integers(0, boundary)),
        recomputable=draw(st.sampled_from([True, True, True, False])),
        begins=draw(st.sampled_from([False, False, False, True])),
    )


CHAINS = st.lists(costs(), min_size=1, max_size=8)


def all_blocks(chain: list[Cost]) -> list[tuple[tuple[int, ...], ...]]:
    """Every way to mark segments as plain or recomputed and to cut the recomputed ones into blocks."""
    found = []
    for marks in itertools.product("pbc", repeat=len(chain)):  # plain, begins a block, continues one
        blocks: list[list[int]] = []
        for place, mark in enumerate(marks):
            if mark == "c" and (place == 0 or marks[place - 1] == "p" or chain[place].begins):
                break
            if mark != "p" and not chain[place].recomputable:
                break
            if mark == "b":
                blocks.append([place])
            elif mark == "c":
                blocks[-1].append(place)
        else:
            found.append(tuple(map(tuple, blocks)))
    return found


def all_choices(chain: list[Cost]) -> list[Choice]:
    return [described(chain, blocks) for blocks in all_blocks(chain)]


@given(CHAINS, st.integers(0, 100))
def test_no_choice_within_the_budget_is_cheaper(chain, budget):
    possible = [choice.extra_flops for choice in all_choices(chain) if choice.peak_bytes <= budget]
    found = choose_blocks(chain, budget)
    assert (found is None) == (not possible)
    if found is not None:
        assert found.peak_bytes <= budget
        assert found == described(chain, found.blocks)
        assert found.extra_flops == min(possible)


@given(CHAINS)
def test_the_smallest_peak_is_found(chain):
    assert smallest(chain).peak_bytes == min(choice.peak_bytes for choice in all_choices(chain))


def test_nothing_is_recomputed_if_it_fits():
    assert choose_blocks([Cost(5, 1, 1)] * 3, 15) == Choice((), 0, 15, 15)


def test_blocks_respect_what_may_not_be_recomputed_or_crossed():
    chain = [Cost(10, 1, 1), Cost(10, 1, 1, recomputable=False), Cost(10, 1, 1), Cost(10, 1, 1, begins=True)]
    found = smallest(chain)
    assert found.blocks == ((0,), (2,), (3,))


def test_two_hundred_segments_take_seconds_and_come_near_the_square_root():
    dice = random.Random(3)
    chain = [
        Cost(dice.randint(50, 150) * 2**10, dice.randint(10, 40) * 2**10, dice.randint(1, 100)) for _ in range(200)
    ]
    plain = sum(cost.kept_bytes for cost in chain)
    started = time.process_time()  # of this process: what others do meanwhile is no matter
    least = smallest(chain)
    found = {share: choose_blocks(chain, plain // share) for share in (2, 3)}
    assert time.process_time() - started < 30  # three searches
    assert least.peak_bytes < plain / 5
    assert all(choice is not None and choice.peak_bytes <= plain // share for share, choice in found.items())
    total = sum(cost.flops for cost in chain)
    assert found[2].extra_flops < 0.6 * total
    assert found[2].extra_flops < found[3].extra_flops < total
