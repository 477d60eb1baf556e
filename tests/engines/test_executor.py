"""The simulated executor's laws on made-up graphs: who runs when, and how long buffers live."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_graphs import Draft, drafts, executed

law = settings(max_examples=60, deadline=None)


def names(executor):
    return [executor.graph.nodes[number].op.name for number in executor.schedule]


def peak(draft, **options):
    return executed(draft, **options).allocator.peak_in_use_bytes


def of(executor, owner, name=None):
    """The buffers that nodes (of that name) or others took in the last step."""
    nodes = executor.graph.nodes
    return [b for b in executor.buffers if b.owner == owner and (name is None or nodes[b.number].op.name == name)]


def dies_with(executor, name):
    """The node that was the last to run while this node's output was held."""
    (buffer,) = of(executor, "output", name)
    return names(executor)[buffer.death - executor.recorded_from - 1]


# How long buffers live


def test_a_buffer_lives_until_its_last_reader_has_run():
    draft = Draft()
    first = draft.add("first")
    draft.add("near", first)
    draft.add("far", first, after=(1,))
    draft.add("later", after=(2,))
    assert dies_with(executed(draft), "first") == "far"


def test_an_output_that_nobody_reads_is_gone_when_its_op_ends():
    draft = Draft()
    draft.add("unread")
    draft.add("later", after=(0,))
    assert dies_with(executed(draft), "unread") == "unread"


def test_a_chain_holds_two_buffers():
    draft = Draft()
    last = draft.add("n0")
    for i in range(1, 6):
        last = draft.add(f"n{i}", last)
    assert peak(draft) == 200


def test_a_returned_tensor_lives_to_the_end_of_the_step():
    draft = Draft()
    draft.returned = [draft.add("result")]
    draft.add("middle", after=(0,))
    draft.add("last", after=(1,))
    executor = executed(draft)
    assert dies_with(executor, "result") == "last"
    assert executor.allocator.in_use_bytes == 0


def test_temporaries_are_gone_when_the_op_ends():
    draft = Draft()
    draft.add("first", temporaries=(1000,))
    draft.add("second", after=(0,), temporaries=(1000,))
    assert peak(draft) == 1000 + 100


def test_nothing_is_taken_for_nothing():
    draft = Draft()
    draft.add("empty", size=0)
    assert executed(draft).allocator.taken == 0


def test_arguments_and_constants_are_taken_once_for_all_steps():
    draft = Draft()
    draft.add("reads", draft.argument(30), draft.constant(20))
    executor = executed(draft, steps=3)
    assert executor.allocator.in_use_bytes == 50
    assert executor.allocator.peak_in_use_bytes == 150


# Buffers that are handed on


def in_place(*more, size=100, source=None):
    """A kernel that may write into its input."""
    draft = Draft()
    given = source(draft) if source else draft.add("input")
    for name in more:
        draft.add(name, given, size=1)
    draft.add("writes", given, size=size, reuses=(0,), after=range(len(draft.nodes)))
    return of(executed(draft), "output", "writes")


def test_a_kernel_takes_over_a_buffer_that_nobody_else_reads():
    assert in_place() == []


def test_a_kernel_takes_over_a_buffer_whose_other_readers_have_run():
    assert in_place("earlier") == []


def test_a_kernel_takes_over_nothing_that_another_will_read():
    draft = Draft()
    given = draft.add("input")
    draft.add("writes", given, reuses=(0,))
    draft.add("reads", given, after=(1,))
    assert len(of(executed(draft), "output", "writes")) == 1


def test_a_kernel_takes_over_nothing_that_it_reads_twice():
    draft = Draft()
    given = draft.add("input")
    draft.add("writes", given, given, reuses=(0, 1))
    assert len(of(executed(draft), "output", "writes")) == 1


@pytest.mark.parametrize("size", [99, 101])
def test_a_kernel_takes_over_nothing_of_another_size(size):
    assert len(in_place(size=size)) == 1


def read_variable(draft):
    handle, variable = draft.variable(100)
    return draft.add("read", handle, variables=(variable,), kind="ReadVariableOp")


@pytest.mark.parametrize(
    "source", [lambda draft: draft.argument(100), lambda draft: draft.constant(100), read_variable],
    ids=["argument", "constant", "variable"],
)  # fmt: skip
def test_a_kernel_never_takes_over_what_outlives_the_step(source):
    assert len(in_place(source=source)) == 1


def test_the_second_candidate_is_taken_over_where_the_first_is_still_read():
    draft = Draft()
    kept, free = draft.add("kept"), draft.add("free", after=(0,))
    draft.add("writes", kept, free, reuses=(0, 1))
    draft.add("reads", kept, after=(2,))
    assert of(executed(draft), "output", "writes") == []


def test_one_buffer_is_taken_over_for_one_output():
    draft = Draft()
    draft.run("writes", (draft.add("input"),), (100, 100), reuses=(0,))
    assert len(of(executed(draft), "output", "writes")) == 1


def test_a_shared_output_takes_nothing_and_keeps_the_buffer_alive():
    draft = Draft()
    view = draft.add("view", draft.add("input"), shares=0)
    draft.add("later", after=(1,))
    draft.add("last", view, after=(2,))
    executor = executed(draft)
    assert of(executor, "output", "view") == []
    assert dies_with(executor, "input") == "last"


def test_a_lent_input_saves_a_temporary():
    draft = Draft()
    draft.add("needy", draft.add("input"), size=1, temporaries=(100, 100), lends=(0,))
    assert len(of(executed(draft), "temporary")) == 1


@pytest.mark.parametrize(("size", "read_later"), [(99, False), (100, True)])
def test_an_input_of_another_size_or_that_is_read_later_is_not_lent(size, read_later):
    draft = Draft()
    given = draft.add("input", size=size)
    draft.add("needy", given, temporaries=(100,), lends=(0,))
    if read_later:
        draft.add("reader", given, after=(1,))
    assert len(of(executed(draft), "temporary")) == 1


def test_an_argument_is_not_lent():
    draft = Draft()
    draft.add("needy", draft.argument(100), temporaries=(100,), lends=(0,))
    assert len(of(executed(draft), "temporary")) == 1


# Variables


def changed(kind, *, read_later, gathered=False):
    """A step that reads a variable of 100 bytes, changes it, and perhaps reads the old value afterwards."""
    draft = Draft()
    handle, variable = draft.variable(100)
    if gathered:
        draft.add("gather", handle, variables=(variable,), kind="ResourceGather", size=1)
    last = len(draft.nodes)
    old = draft.add("read", handle, variables=(variable,), kind="ReadVariableOp", after=range(last))
    value = draft.add("value", old)
    draft.run("change", (handle, value), variables=(variable,), kind=kind)
    if read_later:
        draft.add("reader", old, size=1, after=(last + 2,))
    executor = executed(draft, steps=2)
    assert executor.allocator.in_use_bytes == 100
    return executor


def test_a_variable_that_nobody_reads_is_updated_in_place():
    executor = changed("AssignAddVariableOp", read_later=False)
    assert len(of(executor, "variable")) == 1
    assert executor.allocator.peak_in_use_bytes == 200


def test_a_variable_that_is_still_read_is_copied_on_update():
    executor = changed("AssignAddVariableOp", read_later=True)
    assert len(of(executor, "variable")) == 2
    assert executor.allocator.peak_in_use_bytes == 300


def test_an_assigned_value_that_nobody_else_reads_becomes_the_variable():
    executor = changed("AssignVariableOp", read_later=True)
    before, after = of(executor, "variable")
    assert after.birth == executor.recorded_from + 2  # when `value` was made
    assert before.death is not None
    assert executor.allocator.peak_in_use_bytes == 201


def test_an_assigned_argument_is_copied_into_the_variable():
    draft = Draft()
    handle, variable = draft.variable(100)
    draft.run("assign", (handle, draft.argument(100)), variables=(variable,), kind="AssignVariableOp")
    executor = executed(draft)
    assert executor.variables[variable] is not executor.fixed[draft.arguments[0]]
    assert executor.allocator.taken == 2


def test_a_variable_that_was_gathered_from_is_copied_when_read():
    executor = changed("AssignAddVariableOp", read_later=False, gathered=True)
    assert len(of(executor, "output", "read")) == 1


@pytest.mark.parametrize("kind", ["AssignAddVariableOp", "AssignVariableOp"])
def test_a_variable_that_was_gathered_from_is_copied_when_changed(kind):
    executor = changed(kind, read_later=False, gathered=True)
    assert len(of(executor, "variable")) == 2


def test_a_sparse_update_of_a_variable_that_was_gathered_from_is_in_place():
    executor = changed("ResourceScatterAdd", read_later=False, gathered=True)
    assert len(of(executor, "variable")) == 1


def test_variables_are_made_in_the_order_given_and_drafts_let_go():
    draft = Draft()
    for size in (10, 20):
        draft.variable(size)
    executor = executed(draft, steps=0)
    executor.buffers.clear()
    executor.place([(1, 2), (0, 0)])
    assert [(b.number, b.death is None) for b in executor.buffers] == [(1, False), (1, False), (1, True), (0, True)]


# Who runs when


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


def test_of_the_nodes_that_become_ready_the_one_added_last_runs_first():
    assert names(executed(fan("c1", "c2", "c3"))) == ["root", "c3", "c2", "c1"]


def test_cheap_nodes_run_first_in_first_out():
    draft = fan("c1", "c2")
    draft.run("after_c1", after=(1,), cheap=True)
    draft.run("after_c2", after=(2,), cheap=True)
    first, second = names(executed(draft))[1:3]
    assert names(executed(draft)) == ["root", first, second, f"after_{first}", f"after_{second}"]


def test_expensive_nodes_wait_behind_cheap_ones():
    assert names(executed(fan("c1", "e1", "c2")))[-1] == "e1"


def test_of_expensive_nodes_one_stays_and_of_the_others_the_newest_runs_first():
    draft = fan("e1", "e2", "e3")
    draft.run("after_e1_a", after=(1,))
    draft.run("after_e1_b", after=(1,))
    assert names(executed(draft)) == ["root", "e1", "after_e1_a", "after_e1_b", "e2", "e3"]


def test_an_idle_thread_takes_the_oldest_task_of_another():
    assert names(executed(fan("e1", "e2", "e3"), threads=2)) == ["root", "e1", "e3", "e2"]


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


@law
@given(drafts(), st.integers(1, 4), st.integers(0, 5))
def test_a_step_leaves_what_it_found(draft, threads, seed):
    base = executed(draft, steps=0).allocator.in_use_bytes
    for steps in (1, 3):
        executor = executed(draft, threads, seed, steps=steps)
        assert executor.allocator.in_use_bytes == base
        assert sum(buffer.size_bytes for buffer in executor.buffers if buffer.death is None) == base


@law
@given(drafts(), st.integers(1, 4), st.integers(0, 5))
def test_the_peak_is_no_less_than_any_op_needs(draft, threads, seed):
    base = executed(draft, steps=0).allocator.in_use_bytes
    needs = [
        sum(node.op.attributes.get("temporaries", ())) + sum(made.size_bytes for made in node.op.outputs)
        for node in draft.nodes
        if node.op.kind != "ReadVariableOp" and "shares" not in node.op.attributes
    ]
    assert peak(draft, threads=threads, seed=seed) >= base + max(needs, default=0)
