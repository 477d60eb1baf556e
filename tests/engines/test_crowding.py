"""Loops whose turns run ahead of their sums, made up: what can wait, how much of it, and that no order of the kernels holds more."""

import pytest
from made_up_graphs import Draft, MadeUpKernels, array
from test_simulate import machine, step_of

from legroom.engines.op.crowding import crowds
from legroom.engines.op.graph import LOOP_END, LOOP_GATE
from legroom.engines.op.ops import Array
from legroom.engines.op.planned import Planned
from legroom.engines.op.simulate import simulate_graph

PRODUCT, SUM, CHAIN = 1024, 1024, 256


class Looping(Draft):
    """A loop of turns, as `unroll.py` lays them out; `body(draft, turn, gate, carried)` returns what is carried on."""

    def loop(self, body, turns, parallel, carried, name="loop", outer=()):
        starts, ends = [], []
        for turn in range(turns):
            waits = [
                *(starts[-1:] or outer),
                *(ends[turn - parallel : turn - parallel + 1] if turn >= parallel else ()),
            ]
            starts.append(self.run(name, after=waits, kind=LOOP_GATE, cheap=True)[0])
            first = len(self.nodes)
            carried = body(self, turn, starts[-1], carried)
            inside = [*range(first, len(self.nodes)), starts[-1]]
            ends.append(self.run(name, after=inside, kind=LOOP_GATE, cheap=True)[0])
        self.run(name, after=ends[-1:], kind=LOOP_END, cheap=True)
        return carried


def summing(slow=None, **options):
    """A turn of a gradient: from what was carried comes what is carried on, and a product that is added to a sum."""

    def body(draft, turn, gate, carried):
        before, total = carried
        after = draft.add("chain", before, size=CHAIN, after=(gate,), seconds=4.0)
        seconds = 1e9 if turn == slow else 1.0
        product = draft.add("product", after, size=PRODUCT, after=(gate,), seconds=seconds, **options)
        return after, draft.add("sum", total, product, size=SUM, after=(gate,), reuses=(0,), **options)

    return body


def gradient(turns=12, parallel=4, slow=None, **options):
    draft = Looping()
    start, total = draft.add("start", size=256), draft.add("zeros", size=SUM)
    draft.returned.extend(draft.loop(summing(slow, **options), turns, parallel, (start, total)))
    return draft


def found(draft):
    graph = draft.graph()
    plans = Planned(graph, MadeUpKernels()).plans
    return [({graph.nodes[n].op.name for n in crowd.makers}, crowd.most_bytes) for crowd in crowds(graph, plans)]


@pytest.mark.parametrize(("turns", "parallel", "open_at_once"), [(12, 4, 4), (12, 2, 2), (3, 10, 3)])
def test_what_is_summed_and_what_that_is_made_of_can_wait_in_as_many_turns_as_may_be_open(
    turns, parallel, open_at_once
):
    assert found(gradient(turns, parallel)) == [({"product", "chain"}, open_at_once * (PRODUCT + CHAIN))]


def test_what_was_made_before_the_loop_for_each_turn_waits_with_what_reads_it():
    """A product reads what the forward loop has kept for that turn, and the same weight in each."""

    def body(draft, turn, gate, total):
        product = draft.add("product", kept[turn], weight, size=PRODUCT, after=(gate,))
        return draft.add("sum", total, product, size=SUM, after=(gate,), reuses=(0,))

    draft = Looping()
    kept = [draft.add("kept", size=512) for _ in range(6)]
    weight = draft.add("weight", size=4096)
    draft.loop(body, 6, 3, draft.add("zeros", size=SUM))
    assert found(draft) == [({"product", "kept"}, 3 * (PRODUCT + 512))]


def test_terms_that_are_added_to_a_variable_one_by_one_can_all_wait():
    draft = Draft()
    total = draft.add("variable", size=512)
    for size in (256, 512, 256):
        draft.add("added", total, draft.add("term", size=size), kind="AssignAdd")
    assert found(draft) == [({"term"}, 1024)]


def test_nothing_waits_where_one_turn_ends_before_the_next():
    assert found(gradient(parallel=1)) == []


def test_nothing_waits_in_a_single_turn():
    assert found(gradient(turns=1)) == []


def test_kernels_that_are_cheap_run_in_line():
    assert found(gradient(cheap=True)) == []


def test_a_chain_does_not_run_ahead_of_itself():
    """A state and a memory that are made from each other, as an LSTM has them."""

    def body(draft, turn, gate, carried):
        state, memory = carried
        gates = draft.add("gates", state, size=512, after=(gate,))
        memory = draft.add("memory", gates, memory, size=256, after=(gate,))
        return draft.add("state", gates, memory, size=256, after=(gate,)), memory

    draft = Looping()
    draft.loop(body, 6, 3, (draft.add("start", size=256), draft.add("zeros", size=256)))
    assert found(draft) == []


def test_what_needs_nothing_carried_runs_ahead_of_what_does():
    def body(draft, turn, gate, state):
        row = draft.add("row", rows, size=512, after=(gate,))
        return draft.add("state", row, state, size=256, after=(gate,))

    draft = Looping()
    rows = draft.argument(4096)
    draft.loop(body, 6, 3, draft.add("start", size=256))
    assert found(draft) == [({"row"}, 3 * 512)]


def test_what_is_read_after_the_loop_is_held_anyway():
    kept = []

    def body(draft, turn, gate, carried):
        before = len(draft.tensors)
        carried = summing()(draft, turn, gate, carried)
        kept.append(before + 1)  # the product
        return carried

    draft = Looping()
    draft.loop(body, 6, 3, (draft.add("start", size=256), draft.add("zeros", size=SUM)))
    draft.add("stack", *kept)
    assert found(draft) == []


def test_whole_numbers_do_not_count_as_carried():
    def body(draft, turn, gate, number):
        row = draft.add("row", rows, size=512, after=(gate,))
        draft.add("reads", row, number, size=256, after=(gate,))
        following = draft.add("following", number, size=8, after=(gate,))
        draft.tensors[following] = Array((), "int32")
        return following

    draft = Looping()
    rows = draft.argument(4096)
    draft.loop(body, 6, 3, draft.tensor(Array((), "int32")))
    assert found(draft) == []


def test_loops_inside_turns_are_found_each_time():
    def body(draft, turn, gate, carried):
        return draft.loop(summing(), 5, 2, carried, name="inner", outer=(gate,))

    draft = Looping()
    draft.loop(body, 3, 1, (draft.add("start", size=256), draft.add("zeros", size=SUM)), name="outer")
    assert found(draft) == [({"product", "chain"}, 2 * (PRODUCT + CHAIN))] * 3


# The bound


def outcome_of(draft, threads=2):
    return simulate_graph(step_of(), draft.graph(), machine(threads=threads), (1, 2, 3))


@pytest.mark.parametrize("slow", range(12))
def test_a_thread_that_stands_still_in_a_product_lets_no_more_pile_up_than_was_said(slow):
    usual, held_up = outcome_of(gradient(parallel=6)), outcome_of(gradient(parallel=6, slow=slow))
    assert held_up.program.total_bytes <= max(usual.peaks)


def test_a_thread_that_stands_still_does_let_products_pile_up():
    usual, held_up = outcome_of(gradient(parallel=6)), outcome_of(gradient(parallel=6, slow=2))
    assert held_up.program.total_bytes >= usual.program.total_bytes + 2 * PRODUCT


def test_the_runs_themselves_are_told():
    outcome = outcome_of(gradient())
    assert len(outcome.peaks) == 10  # five runs, and the same with crowded loops
    assert outcome.program.total_bytes == sorted(outcome.peaks[:5])[2]
    assert min(outcome.peaks) == min(outcome.peaks[:5])


def test_a_graph_without_loops_has_the_peaks_of_its_runs():
    draft = Draft()
    draft.add("a", draft.tensor(array(10)))
    assert len(outcome_of(draft).peaks) == 5
