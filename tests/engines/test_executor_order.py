"""Which node runs when on the simulated executor."""

from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_graphs import Draft, drafts, executed, names, peak

law = settings(max_examples=60, deadline=None)


def test_control_dependencies_are_obeyed():
    draft = Draft()
    draft.run("waits", after=(2,))
    draft.run("free")
    draft.run("first", after=(1,))
    assert names(executed(draft)) == ["free", "first", "waits"]


def fan(*consumers, **options):
    """A root and nodes that wait for it: cheap where their name begins with c."""
    draft = Draft()
    draft.run("root", cheap=True)
    for name in consumers:
        draft.run(name, after=(0,), cheap=name.startswith("c"), **options)
    return draft


def test_nodes_that_become_ready_together_run_in_the_graphs_order():
    assert names(executed(fan("c1", "c2", "c3"))) == ["root", "c1", "c2", "c3"]


def test_cheap_nodes_run_first_in_first_out():
    draft = fan("c1", "c2")
    draft.run("after_c1", after=(1,), cheap=True)
    draft.run("after_c2", after=(2,), cheap=True)
    first, second = names(executed(draft))[1:3]
    assert names(executed(draft)) == ["root", first, second, f"after_{first}", f"after_{second}"]


def test_expensive_nodes_wait_behind_cheap_ones():
    assert names(executed(fan("c1", "e1", "c2")))[-1] == "e1"


def test_of_expensive_nodes_the_last_stays_and_of_the_others_the_newest_runs_first():
    draft = fan("e1", "e2", "e3")
    draft.run("after_e1_a", after=(1,))
    draft.run("after_e1_b", after=(1,))
    assert names(executed(draft)) == ["root", "e3", "e2", "e1", "after_e1_b", "after_e1_a"]


def test_an_idle_thread_takes_the_oldest_task_of_another():
    assert names(executed(fan("e1", "e2", "e3"), threads=2)) == ["root", "e3", "e1", "e2"]


def test_who_takes_a_result_is_ready_before_who_only_waits():
    draft = Draft()
    root = draft.add("root", cheap=True)
    draft.run("c1", after=(0,), cheap=True)
    draft.add("c2", root, cheap=True)
    assert names(executed(draft)) == ["root", "c2", "c1"]


def test_threads_hold_buffers_side_by_side():
    draft = fan("e1", "e2", "e3", temporaries=(100,))
    assert [peak(draft, threads=threads) for threads in (1, 2, 3)] == [100, 200, 300]


def test_another_seed_is_another_order_and_the_same_seed_the_same():
    draft = Draft()
    for i in range(8):
        draft.add(f"b{i}", draft.add(f"a{i}"))
    orders = [names(executed(draft, threads=3, seed=seed)) for seed in (1, 2, 1)]
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]


@law
@given(drafts(), st.integers(1, 4), st.integers(0, 5))
def test_every_node_runs_once_after_its_predecessors(draft, threads, seed):
    executor = executed(draft, threads, seed, steps=2)
    maker = {tensor: number for number, node in enumerate(draft.nodes) for tensor in node.outputs}
    assert sorted(executor.schedule) == list(range(len(draft.nodes)))
    for number, node in enumerate(draft.nodes):
        begins = executor.log.index(("begin", number))
        for earlier in {*node.after, *(maker[tensor] for tensor in node.inputs if tensor in maker)}:
            assert executor.log.index(("end", earlier)) < begins


@law
@given(drafts(), st.integers(1, 4), st.integers(0, 5))
def test_no_more_nodes_run_at_once_than_there_are_threads(draft, threads, seed):
    running = 0
    for what, _ in executed(draft, threads, seed).log:
        running += 1 if what == "begin" else -1
        assert running <= threads


def roots(count, **options):
    draft = Draft()
    for i in range(count):
        draft.run(f"root{i}", **options)
    return draft


def test_cheap_nodes_that_wait_for_nothing_run_before_all_that_they_make_ready():
    draft = roots(3, cheap=True)
    for i in range(3):
        draft.run(f"after{i}", after=(i,))
    found = names(executed(draft))
    assert {name[:4] for name in found[:3]} == {"root"}
    assert found[3:] == [f"after{name[4:]}" for name in reversed(found[:3])]


def test_a_process_begins_every_step_in_its_own_order():
    draft = roots(8, cheap=True)
    orders = {seed: [names(executed(draft, seed=seed, steps=steps)) for steps in (1, 2)] for seed in range(6)}
    assert all(first == second for first, second in orders.values())
    assert len({tuple(first) for first, _ in orders.values()}) > 1


def test_what_reads_one_variable_becomes_ready_together():
    draft = Draft()
    handles = [draft.variable(100) for _ in range(4)]
    for time in "ab":
        for i, (_, number) in enumerate(handles):
            draft.run(f"{i}{time}", variables=(number,), cheap=True)
    found = names(executed(draft, seed=3))
    assert [name[1] for name in found] == ["a", "b"] * 4
    assert all(one[0] == two[0] for one, two in zip(found[::2], found[1::2], strict=True))


def test_a_variable_and_an_argument_of_one_number_are_two():
    orders = set()
    for seed in range(12):
        draft = Draft()
        argument = draft.argument(100)
        _, number = draft.variable(100)
        assert argument == number
        for name in "ab":
            draft.run(f"argument_{name}", (argument,), cheap=True)
            draft.run(f"variable_{name}", variables=(number,), cheap=True)
        orders.add(tuple(name[0] for name in names(executed(draft, seed=seed))))
    assert orders == {("a", "a", "v", "v"), ("v", "v", "a", "a")}
