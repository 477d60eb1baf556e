"""Made-up eager traces, replayed: a tensor lives until it is let go of, and nothing is taken over."""

from math import prod

import pytest

from legroom.engines.bfc import Bfc
from legroom.engines.op.kernels import CpuKernels, GpuKernels
from legroom.engines.op.ops import Array, Op
from legroom.engines.op.replay_eager import EagerReplay, simulate_eager
from legroom.engines.op.simulate import Machine
from legroom.engines.op.trace import Dropped, EagerTrace, Ran, Resident
from legroom.gpus import find
from legroom.memory.estimate import Bounds, Target, assemble
from legroom.memory.liveness import held_bytes
from legroom.records.step import Step

STEP = Step("tensorflow", "2.21.0", "3.15.1", "", "eager", "", 8, ())
LARGE = (256,)  # int64: 2 KiB


def ran(kind, inputs=(), outputs=(), shape=LARGE, line=None, name=None, **attributes):
    arrays = tuple(tuple(Array(shape, "int64") for _ in part) for part in (inputs, outputs))
    return Ran(Op(name or kind, kind, *arrays, attributes), tuple(inputs), tuple(outputs), line)


def variable(shape=LARGE, dtype="int64"):
    return Resident(Array(shape, dtype), "variable", "w")


def replayed(*events, residents=None, limit=2**30, kernels=None):
    trace = EagerTrace(events, residents or {}, (), (), ())
    return simulate_eager(trace, Machine(kernels or CpuKernels(1), lambda: Bfc(limit), 1))


def curve(*events, **options):
    """What is held at each op, in units of `LARGE`."""
    return [held / (8 * prod(LARGE)) for held in held_bytes(replayed(*events, **options).program)]


def in_use(*events, residents, steps):
    """What is held after so many steps, in units of `LARGE`."""
    allocator = Bfc(2**30)
    replay = EagerReplay(
        EagerTrace(events, residents, (), (), ()), Machine(CpuKernels(1), lambda: allocator, 1), allocator
    )
    replay.place()
    for _ in range(steps):
        replay.step()
    return allocator.in_use_bytes / (8 * prod(LARGE))


def test_a_tensor_lives_until_it_is_dropped():
    events = ran("Exp", [], [1]), ran("Sin", [1], [2]), Dropped(1), ran("Cos", [2], [3])
    assert curve(*events) == [1, 2, 2]


def test_a_tensor_that_python_holds_lives_to_the_end():
    assert curve(ran("Exp", [], [1]), ran("Sin", [1], [2]), ran("Cos", [2], [3])) == [1, 2, 3]


def test_what_a_step_holds_at_its_end_is_let_go():
    assert in_use(ran("Exp", [], [1]), ran("Sin", [1], [2]), residents={}, steps=2) == 0


def test_what_a_loop_has_bound_lives_until_its_next_turn_has_made_it_anew():
    events = ran("Exp", [], [1]), ran("Sin", [1], [2]), Dropped(1), ran("NoOp")
    trace = EagerTrace(events, {}, (2,), (2,), ())
    found = simulate_eager(trace, Machine(CpuKernels(1), lambda: Bfc(2**30), 1))
    assert [held / (8 * prod(LARGE)) for held in held_bytes(found.program)] == [2, 3, 1]


def test_an_op_does_not_write_into_its_input():
    assert curve(ran("Exp", [], [1]), ran("Relu", [1], [2])) == [1, 2]


def test_an_alias_shares_and_keeps_alive():
    events = ran("Exp", [], [1]), ran("Reshape", [1], [2]), Dropped(1), ran("Sin", [2], [3]), Dropped(2)
    assert curve(*events, ran("NoOp")) == [1, 1, 2, 1]


def test_an_output_of_a_function_shares_what_it_is_said_to():
    call = ran("PartitionedCall", [1], [2, 3, 4], aliases=(None, "input_0", "output_0"))
    events = ran("Exp", [], [1]), call, Dropped(1), Dropped(2), ran("NoOp"), Dropped(3), ran("NoOp"), Dropped(4)
    assert curve(*events, ran("NoOp")) == [1, 2, 2, 1, 0]


def test_temporaries_are_gone_when_the_op_ends():
    assert curve(ran("Exp", [], [1]), ran("HistogramFixedWidth", [1], [2]), ran("NoOp")) == [1, 2.5, 2]


def test_an_assigned_value_becomes_the_variable():
    events = ran("Exp", [], [1]), ran("AssignVariableOp", [0, 1]), ran("NoOp"), Dropped(1), ran("NoOp")
    assert curve(*events, residents={0: variable()}) == [2, 2, 1, 1]


def test_a_read_takes_nothing():
    assert curve(ran("ReadVariableOp", [0], [1]), residents={0: variable()}) == [1]


def test_a_variable_that_is_read_is_copied_before_it_is_updated():
    events = ran("ReadVariableOp", [0], [1]), ran("AssignAddVariableOp", [0]), Dropped(1), ran("NoOp")
    assert curve(*events, residents={0: variable()}) == [1, 2, 1]


def test_a_variable_that_nobody_reads_is_updated_in_place():
    events = ran("ReadVariableOp", [0], [1]), Dropped(1), ran("AssignAddVariableOp", [0])
    assert curve(*events, residents={0: variable()}) == [1, 1]


def test_a_variable_that_was_gathered_from_is_copied_when_read():
    events = ran("ResourceGather", [0], [1], shape=()), ran("ReadVariableOp", [0], [2])
    assert curve(*events, residents={0: variable()})[1] >= 2


@pytest.mark.parametrize(("kernels", "held"), [(CpuKernels(1), 0), (GpuKernels(find("t4")), 1)], ids=["cpu", "gpu"])
def test_a_python_constant_takes_device_memory_only_on_a_gpu(kernels, held):
    assert curve(ran("_EagerConst", [], [1]), kernels=kernels) == [held]


@pytest.mark.parametrize(("kernels", "held"), [(CpuKernels(1), 0), (GpuKernels(find("t4")), 1)], ids=["cpu", "gpu"])
def test_a_constant_that_was_there_takes_device_memory_only_on_a_gpu(kernels, held):
    constant = Resident(Array(LARGE, "int64"), "constant")
    assert curve(ran("NoOp"), residents={0: constant}, kernels=kernels) == [held]


EVENTS = (
    ran("ReadVariableOp", [0], [1]), ran("Mul", [1, 10], [2]), ran("AssignVariableOp", [0, 2]), Dropped(1),
    ran("AssignAddVariableOp", [0]), Dropped(2), ran("Exp", [10], [3]),
)  # fmt: skip
RESIDENTS = {0: variable(), 10: Resident(Array(LARGE, "int64"), "batch")}


def test_every_step_leaves_what_it_found():
    assert [in_use(*EVENTS, residents=RESIDENTS, steps=steps) for steps in (0, 1, 2)] == [2, 2, 2]


def test_a_variable_that_the_step_creates_is_there_once_however_often_it_runs():
    events = ran("VarHandleOp", [], [5]), ran("Fill", [], [6]), ran("AssignVariableOp", [5, 6]), Dropped(6)
    assert [in_use(*events, residents={5: variable()}, steps=steps) for steps in (0, 1, 2)] == [0, 1, 1]


def test_random_weights_pass_through_drafts_before_the_step_and_are_not_told():
    matrix = variable((16, 16))
    outcome = replayed(ran("NoOp"), residents={0: matrix})
    assert outcome.peaks == (2048,)
    assert outcome.reserved_bytes >= 3 * 2048


def test_buffers_are_told_by_category_and_by_layer_or_line():
    events = (
        ran("Tanh", [10], [1], name="model/dense/Tanh", line="train.py:7"),
        ran("Exp", [1], [2], line="train.py:8"),
    )
    buffers = replayed(*events, residents=RESIDENTS).program.buffers
    assert sorted((buffer.category, buffer.layer) for buffer in buffers) == [
        ("activations", "model/dense"), ("activations", "train.py:8"), ("inputs", ""), ("weights", ""),
    ]  # fmt: skip


def test_parts_sum_to_the_peak():
    outcome = replayed(*EVENTS, residents=RESIDENTS)
    estimate = assemble(STEP, outcome.program, Target("", 0, "op", ""), Bounds(0, 0))
    assert outcome.peaks == (estimate.peak_bytes,) == (sum(estimate.breakdown.values()),)
    assert estimate.breakdown["fragmentation"] == 0


def test_a_failure_names_the_op_and_the_users_line():
    failure = replayed(ran("Exp", [], [1], line="train.py:7"), limit=1024).failure
    assert failure.asked_by == "Exp at train.py:7"
    assert failure.asked_bytes == 2048


def test_a_variable_that_does_not_fit_is_named():
    found = replayed(ran("Exp", [], [1]), residents={7: variable()}, limit=1024)
    assert found.failure is not None
    assert found.failure.asked_by == "w"
