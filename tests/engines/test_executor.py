"""How long buffers live, and who takes them over, on the simulated executor and made-up graphs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_graphs import Counting, Draft, drafts, executed, names, peak

law = settings(max_examples=60, deadline=None)


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


class Ordered(Counting):
    """Also says what was taken and given back, in order."""

    def __init__(self):
        super().__init__()
        self.events = []

    def allocate(self, size_bytes):
        self.events.append(size_bytes)
        return super().allocate(size_bytes)

    def free(self, address):
        self.events.append(-self.live[address])
        super().free(address)


@pytest.mark.parametrize(
    ("outputs_last", "events"), [(False, [100, 1, 2, -2, -1, -100]), (True, [1, 2, 100, -2, -1, -100])]
)
def test_a_kernel_takes_temporaries_before_or_after_its_outputs_and_gives_the_last_one_back_first(outputs_last, events):
    draft = Draft()
    draft.add("needy", temporaries=(1, 2), outputs_last=outputs_last)
    assert executed(draft, allocator=Ordered()).allocator.events == events


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
    _, copy = of(executor, "variable")
    assert copy.birth == executor.recorded_from + 4  # when it was changed, not when `value` was made


def test_a_sparse_update_of_a_variable_that_was_gathered_from_is_in_place():
    executor = changed("ResourceScatterAdd", read_later=False, gathered=True)
    assert len(of(executor, "variable")) == 1


def test_variables_are_made_in_the_order_given_and_drafts_let_go():
    draft = Draft()
    for size in (10, 20):
        draft.variable(size)
    executor = executed(draft, steps=0)
    executor.buffers.clear()
    executor.place([((1,), 2), ((0,), 0)])
    assert [(b.number, b.death is None) for b in executor.buffers] == [(1, False), (1, False), (1, True), (0, True)]


def test_variables_that_begin_as_one_tensor_part_when_they_are_written_to():
    draft = Draft()
    handles = [draft.variable(10) for _ in range(3)]
    value = draft.add("value", size=10)
    for handle, variable in handles:
        draft.run("add", (handle, value), variables=(variable,), kind="AssignAddVariableOp")
    executor = executed(draft, steps=0)
    executor.variables = []
    executor.allocator.__init__()
    executor.place([((0, 1, 2), 0)])
    assert executor.allocator.in_use_bytes == 10
    executor.step()
    assert executor.allocator.in_use_bytes == 30
    assert len({id(buffer) for buffer in executor.variables}) == 3


# In any graph


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
