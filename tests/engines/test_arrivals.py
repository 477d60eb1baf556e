"""Batches that come to a card with every step, on made-up graphs."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_graphs import Counting, Draft, MadeUpKernels, drafts, names

from legroom.engines.bfc import Bfc, OutOfMemory
from legroom.engines.op.arrivals import ArrivingExecutor
from legroom.engines.op.bounds import doubt_of, is_torn, share_of
from legroom.engines.op.ops import Array
from legroom.engines.op.planned import Planned
from legroom.gpus import find
from legroom.records.simulation import Failure

law = settings(max_examples=60, deadline=None)


def arriving(graph, seed=0, *, steps=0, allocator=None):
    executor = ArrivingExecutor(Planned(graph, MadeUpKernels()), allocator or Counting(), 4, seed)
    executor.place()
    for _ in range(steps):
        executor.start_recording()
        executor.step()
    return executor


def read_and_add():
    """A batch that is read, and something else to do meanwhile."""
    draft = Draft()
    first = draft.add("reads", draft.argument(50), size=7, seconds=1e-5, cheap=True)
    draft.add("last", first, size=9, seconds=1e-5, cheap=True)
    for i in range(6):
        draft.add(f"other{i}", size=20, seconds=1e-5, cheap=True)
    return draft


def test_a_batch_is_taken_in_the_step_and_let_go_when_it_has_been_read():
    executor = arriving(read_and_add().graph())
    assert executor.allocator.in_use_bytes == 0
    for _ in range(2):
        executor.start_recording()
        executor.step()
        (batch,) = [held for held in executor.buffers if held.owner == "argument"]
        assert batch.death is not None
        assert executor.allocator.in_use_bytes == 0


def test_what_a_step_returned_is_held_until_the_next_one_is_over():
    draft = read_and_add()
    draft.returned = [draft.add("logs", size=4)]
    executor = arriving(draft.graph(), steps=1)
    assert executor.allocator.in_use_bytes == 4
    executor.step()
    assert executor.allocator.in_use_bytes == 4
    assert sum(held.owner == "output" and held.size_bytes == 4 for held in executor.buffers) == 2


def orders(seed):
    executor = arriving(read_and_add().graph(), seed)
    found = set()
    for _ in range(20):
        executor.start_recording()
        executor.step()
        found.add(tuple(names(executor)))
    return found


def test_where_a_batch_comes_early_steps_run_in_other_orders():
    assert max(len(orders(seed)) for seed in range(4)) > 2


@pytest.mark.parametrize(
    ("kind", "dtype", "held"), [("Cast", "int32", 40), ("Shape", "int32", 0), ("Shape", "float32", 40)]
)
def test_int32_stays_on_the_host_where_only_kernels_there_read_it(kind, dtype, held):
    draft = Draft()
    batch = draft.tensor(Array((10,), dtype))
    draft.arguments.append(batch)
    draft.run("reads", (batch,), (8,), kind=kind)
    executor = arriving(draft.graph(), steps=1)
    assert sum(each.size_bytes for each in executor.buffers if each.owner == "argument") == held


def test_a_batch_without_room_is_an_answer():
    draft = Draft()
    draft.add("reads", draft.argument(4096), size=256)
    with pytest.raises(OutOfMemory):
        arriving(draft.graph(), steps=1, allocator=Bfc(2048, growth=False))


@law
@given(drafts(), st.integers(0, 5))
def test_every_node_runs_once_after_what_it_waits_for(draft, seed):
    graph = draft.graph()
    executor = arriving(graph, seed, steps=3)
    assert sorted(executor.schedule) == list(range(len(graph.nodes)))
    place = {number: at for at, number in enumerate(executor.schedule)}
    maker = {tensor: number for number, node in enumerate(graph.nodes) for tensor in node.outputs}
    for number, node in enumerate(graph.nodes):
        for before in (*node.after, *(maker[tensor] for tensor in node.inputs if tensor in maker)):
            assert place[before] < place[number]


@law
@given(drafts(), st.integers(0, 5))
def test_nothing_stays_but_variables_constants_and_what_was_returned(draft, seed):
    draft.returned = []
    graph = draft.graph()
    base = arriving(graph, seed).allocator.in_use_bytes
    assert arriving(graph, seed, steps=3).allocator.in_use_bytes == base


# What is open of a step on a card


def share(draft, card="h200", *, growth=False, peak_bytes=10**6):
    return share_of(draft.graph(), find(card), peak_bytes, growth=growth)


def test_without_cudnn_a_graph_is_known_to_two_percent_on_the_card_that_was_measured():
    assert share(read_and_add()) == 0.02
    assert share(read_and_add(), "t4") == 0.05


def test_a_pool_that_grows_is_less_certain():
    assert share(read_and_add(), growth=True) == 0.12


def test_recurrent_kernels_are_less_certain():
    draft = read_and_add()
    draft.run("rnn", (), (8,), kind="CudnnRNNV3")
    assert share(draft) == 0.12


@pytest.mark.parametrize(("peak", "expected"), [(10**6, 0.02 + 0.03), (10**5, 0.12)])
def test_a_convolution_may_copy_its_arrays(peak, expected):
    draft = read_and_add()
    image, kernel = draft.argument(20_000), draft.argument(90)
    draft.run("conv", (image, kernel), (10_000,), kind="Conv2D")
    assert share(draft, peak_bytes=peak) == pytest.approx(expected)


def test_torn_is_where_much_more_is_free_than_was_asked_for():
    failure = Failure("op", 100, 120, 90, True)
    assert not is_torn(failure, 1000)
    assert is_torn(replace(failure, free_bytes=140), 1000)


def test_on_a_card_there_must_be_room_for_the_largest_of_a_batch_once_more():
    draft = read_and_add()
    draft.argument(300)
    assert doubt_of(draft.graph(), share=0.02).above_bytes == 300
    assert [doubt_of(draft.graph(), share=share).above_bytes for share in (0.12, None)] == [0, 0]


def test_a_graph_of_a_single_node_may_have_several_arguments():
    draft = Draft()
    draft.add("reads", draft.argument(50), draft.argument(60), size=7)
    assert arriving(draft.graph(), steps=2).allocator.in_use_bytes == 0
