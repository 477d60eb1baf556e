"""Made-up steps on the simulated executor and the simulated allocator: what is told of them, and by whom it is held."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_graphs import Draft, MadeUpKernels, array, drafts

from legroom.engines.bfc import Bfc
from legroom.engines.ledger import Ledger, tell_further_steps
from legroom.engines.op.bounds import CPU_HIGH_SHARE, CPU_LATER_SHARE, Doubt, bounds_of
from legroom.engines.op.executor import Executor
from legroom.engines.op.graph import LOOP_GATE, Graph
from legroom.engines.op.middle import MOST_NODES, middle_step, more_seeds, steps_after
from legroom.engines.op.ops import Array, Op
from legroom.engines.op.planned import Planned
from legroom.engines.op.simulate import FURTHER_STEPS, Machine, Names, Outcome, further_steps, simulate_graph
from legroom.engines.op.trace import EagerTrace, Ran
from legroom.engines.op.unknown import notes_of, unknown_bytes, unknown_kinds
from legroom.memory.estimate import Bounds, Target, assemble
from legroom.memory.liveness import held_bytes
from legroom.records.program import Program
from legroom.records.step import Step, Tensor

law = settings(max_examples=60, deadline=None)
KIB = 2**10
LAYERS = ("dense", "conv")


def step_of(*parameters, optimizer=None):
    return Step("tensorflow", "2.21.0", "3.15.1", "", "graph", "", 8, parameters, LAYERS, optimizer)


def machine(limit=2**30, threads=1, drifts=False, told_steps=1, **options):
    return Machine(MadeUpKernels(), lambda: Bfc(limit, **options), threads, drifts, told_steps=told_steps)


def parameters_of(draft):
    """A parameter for every variable and argument."""
    weights = [Tensor(f"w{i}", array.shape, array.dtype, "weight", "dense") for i, array in enumerate(draft.variables)]
    batch = [Tensor(f"x{i}", draft.tensors[tensor].shape, "int8") for i, tensor in enumerate(draft.arguments)]
    return step_of(*weights, *batch), draft.graph(range(len(weights) + len(batch)))


def simulated(draft, step=None, parameters=(), seeds=(0,), **options):
    return simulate_graph(step or step_of(), draft.graph(parameters), machine(**options), seeds)


# What is told sums to what the allocator counted


@law
@given(drafts(), st.integers(1, 4), st.integers(0, 3))
def test_the_curve_never_exceeds_the_total(draft, threads, seed):
    program = simulate_graph(*parameters_of(draft), machine(threads=threads), (seed,)).program
    assert len(program.schedule) == len(draft.nodes)
    assert max(held_bytes(program)) <= program.total_bytes


@law
@given(drafts(), st.integers(1, 4))
def test_parts_sum_to_the_peak_and_holes_are_no_less_than_nothing(draft, threads):
    step, graph = parameters_of(draft)
    outcome = simulate_graph(step, graph, machine(threads=threads), (0,))
    estimate = assemble(step, outcome.program, Target("", 0, "op", ""), Bounds(0, 0))
    assert outcome.peaks == (estimate.peak_bytes,)
    assert sum(estimate.breakdown.values()) == sum(layer.peak_bytes for layer in estimate.layers) == estimate.peak_bytes
    assert min(estimate.breakdown.values()) >= 0


def test_the_curve_is_what_is_held_while_each_op_runs():
    draft = Draft()
    first = draft.add("first", draft.argument(256), size=512)
    draft.add("second", first, size=1024, temporaries=(2048,))
    draft.run("third", after=(1,))
    program = simulated(draft).program
    assert held_bytes(program) == [256 + 512, 256 + 512 + 1024 + 2048, 256]
    assert program.total_bytes == 256 + 512 + 1024 + 2048


def test_what_the_first_step_and_the_making_of_variables_took_is_not_told():
    draft = Draft()
    draft.variables = [Array((8, 128), "int8")]
    draft.add("small", size=256)
    step = step_of(Tensor("w", (8, 128), "int8", "weight"))
    assert simulated(draft, step, [0]).program.total_bytes == 1024 + 256


# Whose a buffer is


def held_by(draft, step=None, parameters=()):
    program = simulated(draft, step, parameters).program
    return {buffer.name: (buffer.category, buffer.layer) for buffer in program.buffers}


@pytest.mark.parametrize(
    ("role", "category"),
    [("weight", "weights"), ("state", "weights"), ("optimizer", "optimizer"), ("metric", "other")],
)
def test_a_variable_has_its_roles_category_and_its_layer(role, category):
    draft = Draft()
    draft.variable(256)
    draft.run("op")
    step = step_of(Tensor("v", (256,), "int8", role, "dense"))
    assert held_by(draft, step, [0]) == {"v": (category, "dense")}


def test_a_variable_that_capture_did_not_see_is_other():
    draft = Draft()
    draft.variable(256)
    draft.run("op")
    assert held_by(draft, None, [-1]) == {"variable": ("other", "")}


@pytest.mark.parametrize(("parameter", "category"), [(0, "inputs"), (1, "other"), (-1, "inputs")])
def test_an_argument_is_input_unless_the_step_captured_it(parameter, category):
    draft = Draft()
    draft.argument(256)
    draft.run("op")
    step = step_of(Tensor("x", (256,), "int8", "input"), Tensor("table", (256,), "int8", "other"))
    assert held_by(draft, step, [parameter]) == {"argument": (category, "")}


def test_a_constant_is_other():
    draft = Draft()
    draft.constant(256)
    draft.run("op")
    assert held_by(draft) == {"constant": ("other", "")}


@pytest.mark.parametrize(
    ("name", "category", "layer"),
    [
        ("model/dense/MatMul", "activations", "dense"),
        ("gradient_tape/model/conv/Conv2DBackpropInput", "gradients", "conv"),
        ("gradients/model/dense/AddN", "gradients", "dense"),
        ("adam/truediv", "optimizer", ""),
        ("Sum", "activations", ""),
    ],
)
def test_an_op_belongs_to_what_its_name_says(name, category, layer):
    draft = Draft()
    draft.add(name)
    assert held_by(draft, step_of(optimizer="Adam")) == {f"{name} (Made)": (category, layer)}


def test_without_a_known_optimizer_no_op_is_the_optimizers():
    draft = Draft()
    draft.add("adam/truediv")
    assert held_by(draft) == {"adam/truediv (Made)": ("activations", "")}


def test_a_temporary_is_workspace_of_its_ops_layer():
    draft = Draft()
    draft.run("model/conv/Conv2D", temporaries=(256,))
    assert held_by(draft) == {"model/conv/Conv2D (Made)": ("workspace", "conv")}


def test_a_value_that_becomes_a_variable_is_the_variables():
    draft = Draft()
    handle, variable = draft.variable(256)
    draft.run("assign", (handle, draft.add("value", size=256)), variables=(variable,), kind="AssignVariableOp")
    step = step_of(Tensor("w", (256,), "int8", "weight", "dense"))
    assert held_by(draft, step, [0]) == {"w": ("weights", "dense")}


def test_variables_are_made_weights_first_then_the_optimizers_then_metrics_each_in_the_steps_order():
    roles = ("metric", "optimizer", "weight", "state", "optimizer", "weight")
    parameters = [Tensor("", (), "int8", role) for role in roles]
    graph = Graph((), (), tuple(Array((4,), "int8") for _ in roles), parameters=(0, 4, 5, 3, 1, 2))
    order = [graph.parameters[number] for (number,), _ in Names(step_of(*parameters), graph).creation()]
    assert order == [2, 3, 5, 1, 4, 0]


@pytest.mark.parametrize(
    ("role", "shape", "drafts"), [("weight", (4, 4), 2), ("weight", (4,), 0), ("state", (4, 4), 0)]
)
def test_a_matrix_of_weights_is_drawn_at_random_and_passes_through_drafts(role, shape, drafts):
    parameter = Tensor("w", shape, "float32", role)
    graph = Graph((), (), (Array(shape, "float32"),), parameters=(0,))
    assert Names(step_of(parameter), graph).creation() == [((0,), drafts)]


def test_slots_that_are_made_when_the_step_is_traced_begin_as_one_tensor_of_zeros_for_each_shape():
    parameters = [Tensor("", (), "", role) for role in ("weight", "optimizer", "optimizer", "optimizer")]
    arrays = (Array((4,), "int8"), Array((4,), "int8"), Array((2,), "int8"), Array((4,), "int8"))
    graph = Graph((), (), arrays, parameters=(0, 1, 2, 3))
    step = replace(step_of(*parameters), makes_slots=True)
    assert [group for group, _ in Names(step, graph).creation()] == [(0,), (1, 3), (2,)]


# Several runs


def branches():
    """Chains side by side: who gets ahead decides what is held."""
    draft = Draft()
    for i in range(6):
        last = draft.add(f"a{i}", size=(i + 1) * KIB)
        draft.add(f"c{i}", draft.add(f"b{i}", last, size=4 * KIB, temporaries=(i * KIB,)), last, size=256)
    return draft


def test_the_middle_of_several_runs_is_told_and_all_peaks_are_kept():
    seeds = (1, 2, 3, 4, 5)
    each = sorted(simulated(branches(), seeds=(seed,), threads=3).program.total_bytes for seed in seeds)
    outcome = simulated(branches(), seeds=seeds, threads=3)
    assert set(each) <= set(outcome.peaks)
    assert len(outcome.peaks) == 7  # two of the runs have a thread more
    assert outcome.program.total_bytes == sorted(outcome.peaks)[3]
    assert min(outcome.peaks) < max(outcome.peaks)


# The middle of several steps of each run


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=5))
def test_as_many_steps_lie_below_the_middle_one_as_above_it(peaks):
    which, after = middle_step(peaks)
    every = sorted(peak for run in peaks for peak in run)
    assert peaks[which][after] == every[len(every) // 2]


@pytest.mark.parametrize(
    ("nodes", "told_steps", "after"),
    [(0, 5, 4), (1000, 5, 4), (MOST_NODES // 2, 5, 2), (MOST_NODES + 1, 5, 0), (1000, 1, 0)],
)
def test_large_graphs_have_fewer_steps_told_and_one_step_is_the_second(nodes, told_steps, after):
    assert steps_after(nodes, told_steps) == after


def steps_of(draft, seed, count):
    """The peaks of a run's steps from its second on, and what ran in each."""
    allocator = Bfc(2**30)
    executor = Executor(Planned(draft.graph(()), MadeUpKernels()), allocator, 3, seed)
    executor.place()
    executor.step()
    for _ in range(count):
        allocator.reset_peak()
        executor.start_recording()
        executor.step()
        yield allocator.peak_in_use_bytes, tuple(draft.nodes[number].op.name for number in executor.schedule)


def test_the_step_with_the_middle_peak_of_all_that_count_is_told():
    seeds = (0, 1, 2, 3, 4)
    more = more_seeds(len(parameters_of(branches())[1].nodes))
    every = sorted(
        (step for seed in (*seeds, *more) for step in steps_of(branches(), seed, 5)), key=lambda step: step[0]
    )
    program = simulated(branches(), seeds=seeds, threads=3, drifts=True, told_steps=5).program
    assert program.total_bytes == every[len(every) // 2][0]
    assert (program.total_bytes, tuple(ran.name for ran in program.schedule)) in every


@law
@given(drafts(), st.integers(1, 4))
def test_steps_that_are_made_for_the_middle_count_for_the_bounds_too(draft, threads):
    step, graph = parameters_of(draft)
    one, five = (simulate_graph(step, graph, machine(threads=threads, drifts=True, told_steps=n)) for n in (1, 5))
    assert five.peaks == one.peaks
    assert len(five.later_peaks) == len(one.later_peaks) + 3 * 4 + 1
    assert five.program.total_bytes == five.later_peaks[-1]
    assert not Counter(one.later_peaks) - Counter(five.later_peaks)


@law
@given(drafts(), st.sampled_from([256, 512, KIB, 2 * KIB]))
def test_where_there_is_no_room_for_some_steps_one_that_ran_is_told(draft, limit):
    step, graph = parameters_of(draft)
    outcome = simulate_graph(step, graph, machine(limit, threads=2, drifts=True, told_steps=5))
    assert outcome.program.total_bytes in (*outcome.peaks, *outcome.later_peaks)
    assert max(held_bytes(outcome.program), default=0) <= outcome.program.total_bytes <= limit


@pytest.mark.parametrize(("threads", "seconds"), [(1, 6.0), (2, 5.0)])
def test_a_step_takes_as_long_as_its_kernels_side_by_side(threads, seconds):
    draft = Draft()
    for taken in (1.0, 5.0):
        draft.add(f"{taken}", seconds=taken)
    timed = replace(machine(threads=threads), timed=True)
    assert simulate_graph(step_of(), draft.graph(()), timed, (0,)).step_seconds == seconds


# Too little memory


def torn(last_bytes):
    """Four pieces fill the pool, two that do not touch are let go, and something larger is asked for."""
    draft = Draft()
    pieces = []
    for i in range(4):
        pieces.append(draft.add(f"piece{i}", size=KIB, after=range(i)))
    draft.run("lets_go", (pieces[0], pieces[2]))
    draft.add("model/dense/MatMul", size=last_bytes, after=(4,), kind="MatMul")
    draft.run("keeps", (pieces[1], pieces[3]), after=(5,))
    return draft


def test_a_failure_names_the_op_that_asked():
    failure = simulated(torn(3 * KIB), limit=4 * KIB, growth=False).failure
    assert failure.asked_by == "model/dense/MatMul (MatMul)"
    assert (failure.asked_bytes, failure.free_bytes, failure.largest_free_bytes) == (3 * KIB, 2 * KIB, KIB)


@pytest.mark.parametrize(("asked", "is_fragmentation"), [(2 * KIB, True), (3 * KIB, False)])
def test_a_failure_is_fragmentation_where_the_bytes_would_have_sufficed(asked, is_fragmentation):
    assert simulated(torn(asked), limit=4 * KIB, growth=False).failure.is_fragmentation == is_fragmentation


def test_a_failure_names_the_variable_for_which_there_was_no_room():
    draft = Draft()
    draft.variable(KIB)
    draft.variable(4 * KIB)
    step = step_of(Tensor("small", (KIB,), "int8", "weight"), Tensor("table", (4 * KIB,), "int8", "weight"))
    assert simulated(draft, step, [0, 1], limit=4 * KIB).failure.asked_by == "table"


def test_a_limit_that_suffices_fails_nothing():
    assert simulated(torn(KIB), limit=4 * KIB, growth=False).failure is None


@law
@given(drafts(), st.sampled_from([256, 512, KIB, 2 * KIB]))
def test_a_failed_step_is_told_as_far_as_it_came(draft, limit):
    step, graph = parameters_of(draft)
    outcome = simulate_graph(step, graph, machine(limit), (0,))
    estimate = assemble(step, outcome.program, Target("", limit, "op", ""), Bounds(0, 0))
    assert sum(estimate.breakdown.values()) == estimate.peak_bytes <= limit
    assert outcome.failure is not None or len(outcome.program.schedule) == len(draft.nodes)


@law
@given(drafts())
def test_further_steps_are_told_where_steps_differ(draft):
    step, graph = parameters_of(draft)
    settled, drifting = (simulate_graph(step, graph, machine(drifts=drifts)) for drifts in (False, True))
    assert len(drifting.later_peaks) == 2 * FURTHER_STEPS
    assert replace(drifting, later_peaks=()) == settled


@law
@given(drafts(), st.sampled_from([256, 512, KIB, 2 * KIB]))
def test_a_run_that_failed_goes_no_further(draft, limit):
    step, graph = parameters_of(draft)
    settled, drifting = (simulate_graph(step, graph, machine(limit, drifts=drifts)) for drifts in (False, True))
    assert settled.failure is None or drifting.failure == settled.failure
    assert max(*drifting.peaks, *drifting.later_peaks, 0) <= limit


def test_a_step_that_finds_no_room_later_is_a_failure():
    class Leaking(Ledger):
        def step(self):
            self.moment += 1
            self.take("output", 0, 256, readers=1)

    allocator = Bfc(KIB)
    peaks, failure = tell_further_steps(Leaking(allocator), allocator, 8, lambda owner, number: f"{owner} {number}")
    assert peaks == [256, 512, 768, 1024]
    assert failure is not None
    assert (failure.asked_by, failure.asked_bytes) == ("output 0", 256)


def test_large_graphs_have_fewer_further_steps():
    draft = Draft()
    for _ in range(3):
        draft.add("op", size=1)
    assert further_steps(draft.graph()) == FURTHER_STEPS
    assert further_steps(replace(draft.graph(), nodes=draft.graph().nodes * 10_000)) == 5


# How sure it is

ON_CPU = Doubt(CPU_HIGH_SHARE, CPU_LATER_SHARE)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=5), st.floats(0, 0.2), st.integers(0, 2**40))
def test_bounds_hold_all_peaks(peaks, share, unknown):
    bounds = bounds_of(outcome_of(peaks), Doubt(share, share, unknown))
    assert 0 <= bounds.low_bytes <= min(peaks) <= max(peaks) <= bounds.high_bytes


@given(st.integers(0, 2**40), st.lists(st.integers(0, 2**40), min_size=1, max_size=5))
def test_bounds_hold_the_peaks_of_further_steps_and_are_never_narrower_for_them(peak, later):
    first = outcome_of([peak])
    settled, climbed = (bounds_of(found, ON_CPU) for found in (first, replace(first, later_peaks=tuple(later))))
    assert climbed.low_bytes <= settled.low_bytes <= settled.high_bytes <= climbed.high_bytes
    assert climbed.low_bytes <= min(later) <= max(later) <= climbed.high_bytes


def outcome_of(peaks):
    return Outcome(Program((), (), (), 0), tuple(peaks), 0)


def test_bounds_widen_with_what_is_not_known():
    known, less = (bounds_of(outcome_of([10**9]), replace(ON_CPU, unknown_bytes=size)) for size in (0, 10**8))
    assert less.low_bytes < known.low_bytes
    assert less.high_bytes > known.high_bytes


def test_ops_without_a_rule_are_named_with_the_bytes_that_they_make():
    draft = Draft()
    for kind, size in (("Mystery", 10), ("Relu", 100), ("Mystery", 20), (LOOP_GATE, 7), ("TensorListConcatV2", 9)):
        draft.add("op", kind=kind, size=size)
    graph = draft.graph()
    assert unknown_kinds(graph) == {"Mystery": 30}
    assert unknown_bytes(graph) == 30
    assert notes_of(graph) == ("unknown ops, counted by their outputs: Mystery",)


def test_ops_whose_size_only_running_tells_count_as_unknown():
    draft = Draft()
    draft.add("found", kind="Where", size=40)
    draft.add("other", kind="Where", size=50)
    graph = draft.graph(unsized=("Where (found)",))
    assert unknown_bytes(graph) == 40
    assert notes_of(graph) == ("sizes that only running would tell: Where (found)",)


def test_of_many_unknown_kinds_some_are_named_and_the_others_counted():
    draft = Draft()
    for i in range(8):
        draft.add("op", kind=f"Mystery{i}")
    (note,) = notes_of(draft.graph())
    assert note.endswith("Mystery4, Mystery5 and 2 more")


def test_what_an_eager_step_makes_of_tensors_whose_size_data_decides_is_unknown():
    def ran(kind, inputs, outputs):
        arrays = tuple(tuple(array(10) for _ in part) for part in (inputs, outputs))
        return Ran(Op(kind, kind, *arrays), inputs, outputs)

    events = (ran("Exp", (), (1,)), ran("Where", (1,), (2,)), ran("Sin", (2,), (3,)), ran("Cos", (1,), (4,)))
    assert unknown_bytes(EagerTrace(events, {}, (), (), ())) == 20
