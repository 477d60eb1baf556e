"""From the compiler's texts to a Program: made-up ones, and one real dump of each format."""

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from legroom.engines.xla.schedule import DumpTexts, load_dump, read_program
from legroom.errors import EngineError
from legroom.memory.liveness import held_bytes
from legroom.memory.timeline import find_peak
from legroom.records.step import Step, Tensor

DATA = Path(__file__).parent.parent / "data"
REAL = ("xla_0_9_tensorflow_mlp", "xla_0_10_jax_gru")

HLO = """\
HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }

%fused_update (p0: f32[16,16], p1: f32[16,16], p2: f32[16,16]) -> (f32[16,16], f32[16,16]) {
  %p0 = f32[16,16]{1,0} parameter(0)
  %p1 = f32[16,16]{1,0} parameter(1)
  %p2 = f32[16,16]{1,0} parameter(2)
  %new_m = f32[16,16]{1,0} add(%p1, %p2), metadata={op_name="jit(step)/adam/add"}
  %new_w = f32[16,16]{1,0} subtract(%p0, %new_m), metadata={op_name="jit(step)/adam/sub"}
  ROOT %pair = (f32[16,16]{1,0}, f32[16,16]{1,0}) tuple(%new_w, %new_m)
}

%fused_mul (q0: f32[8,16]) -> f32[8,16] {
  %q0 = f32[8,16]{1,0} parameter(0)
  ROOT %q = f32[8,16]{1,0} multiply(%q0, %q0), metadata={op_name="jit(step)/transpose(jvp(dense))/mul"}
}

ENTRY %main (w: f32[16,16], m: f32[16,16], x: f32[8,16]) -> (f32[16,16], f32[16,16], f32[]) {
  %w = f32[16,16]{1,0} parameter(0)
  %m = f32[16,16]{1,0} parameter(1)
  %x = f32[8,16]{1,0} parameter(2)
  %weight_copy = f32[16,16]{0,1} copy(%w), metadata={op_name="state[0][0]"}
  %forward = (f32[8,16]{1,0}, s8[512]{0}) custom-call(%x, %weight_copy), custom_call_target="__cublas$gemm", metadata={op_name="jit(step)/jvp(dense)/dot_general"}
  %y = f32[8,16]{1,0} get-tuple-element(%forward), index=0
  %dy = f32[8,16]{1,0} fusion(%y), kind=kLoop, calls=%fused_mul
  %dw = f32[16,16]{1,0} dot(%x, %dy), lhs_contracting_dims={0}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/transpose(jvp(dense))/dot_general"}
  %update = (f32[16,16]{1,0}, f32[16,16]{1,0}) fusion(%w, %m, %dw), kind=kLoop, calls=%fused_update, metadata={op_name="jit(step)/adam/sub"}
  %w2 = f32[16,16]{1,0} get-tuple-element(%update), index=0
  %m2 = f32[16,16]{1,0} get-tuple-element(%update), index=1
  %loss = f32[] constant(0)
  ROOT %out = (f32[16,16]{1,0}, f32[16,16]{1,0}, f32[]) tuple(%w2, %m2, %loss)
}
"""
ALLOCATIONS = """\
BufferAssignment:
allocation 0: size 1024, parameter 0, shape |f32[16,16]| at ShapeIndex {}, maybe-live-out:
 value: <0 w @0> (size=1024,offset=0): f32[16,16]{1,0}
 value: <9 update{0} @0> (size=1024,offset=0): f32[16,16]{1,0}
allocation 1: size 1024, parameter 1, shape |f32[16,16]| at ShapeIndex {}, maybe-live-out:
 value: <1 m @0> (size=1024,offset=0): f32[16,16]{1,0}
 value: <10 update{1} @0> (size=1024,offset=0): f32[16,16]{1,0}
allocation 2: size 512, parameter 2, shape |f32[8,16]| at ShapeIndex {}:
 value: <2 x @0> (size=512,offset=0): f32[8,16]{1,0}
allocation 3: size 4, constant:
 value: <11 loss @0> (size=4,offset=0): f32[]
allocation 4: size 24, output shape is |(f32[16,16], f32[16,16], f32[])|, maybe-live-out:
 value: <12 out{} @0> (size=24,offset=0): (f32[16,16]{1,0}, f32[16,16]{1,0}, f32[])
allocation 5: size 4, thread-local:
 value: <20 lhs @0> (size=4,offset=0): f32[]
allocation 6: size 3600, preallocated-temp:
 value: <3 weight_copy @0> (size=1024,offset=0): f32[16,16]{0,1}
 value: <4 forward{} @0> (size=16,offset=3584): (f32[8,16]{1,0}, s8[512]{0})
 value: <5 forward{0} @0> (size=512,offset=1024): f32[8,16]{1,0}
 value: <6 forward{1} @0> (size=512,offset=1536): s8[512]{0}
 value: <7 dy @0> (size=512,offset=1024): f32[8,16]{1,0}
 value: <8 dw @0> (size=1024,offset=2048): f32[16,16]{1,0}
 value: <13 update{} @0> (size=16,offset=3328): (f32[16,16]{1,0}, f32[16,16]{1,0})
"""
LIVE_RANGE = """\
HloLiveRange (max 13):
  InstructionSequence:
    0:w
    1:m
    2:x
    3:weight_copy
    4:forward
    5:y
    6:dy
    7:dw
    8:update
    9:w2
    10:m2
    11:loss
    12:out
  BufferLiveRange:
    w{}:0-8
    m{}:0-8
    x{}:0-13
    weight_copy{}:3-4
    forward{}:4-5
    forward{0}:4-6
    forward{1}:4-4
    dy{}:6-7
    dw{}:7-8
    update{}:8-10
    update{0}:8-13
    update{1}:8-13
    loss{}:11-13
    out{}:12-13
  Live ranges at 4 (peak):
    w{}: 1024 bytes (cumulative: 1024 bytes)
"""
TOTAL = "\nTotal bytes used: 6192 (6.0KiB)\n"
NEW = DumpTexts(HLO, ALLOCATIONS, LIVE_RANGE, "Memory Space: default (color=0)\nTotal bytes: 6192 (6.0KiB)\n")
OLD = DumpTexts(HLO, f"{ALLOCATIONS}{TOTAL}\nUsed values:\n<0 w @0>\n positions:\n  w\n\n\n{LIVE_RANGE}")
STEP = Step(
    framework="jax",
    framework_version="0.10.2",
    keras_version="3.15.1",
    source="train.py",
    execution="xla",
    execution_reason="",
    batch=8,
    parameters=(
        Tensor("dense/kernel", (16, 16), "float32", "weight", "dense"),
        Tensor("adam/dense_kernel_momentum", (16, 16), "float32", "optimizer", "dense"),
        Tensor("x", (8, 16), "float32"),
    ),
    layers=("dense",),
    optimizer="adam",
)


@pytest.fixture(scope="module", params=["0.9", "0.10"])
def program(request):
    return read_program(OLD if request.param == "0.9" else NEW, STEP)


def test_total_is_without_what_is_local_to_a_thread(program):
    assert program.total_bytes == 6188
    assert {a.index: a.kind for a in program.allocations} == {
        0: "parameter",
        1: "parameter",
        2: "parameter",
        3: "constant",
        4: "output",
        6: "temporary",
    }


def test_schedule_is_the_compilers(program):
    assert [i.name for i in program.schedule][3:8] == ["weight_copy", "forward", "y", "dy", "dw"]
    assert program.schedule[7].flops == 2 * 16 * 16 * 8
    assert program.schedule[6].op_name == "jit(step)/transpose(jvp(dense))/mul"


def test_parameters_hold_their_memory_all_the_time(program):
    first = program.buffers[0]
    assert (first.name, first.birth, first.death, first.category, first.layer) == (
        "dense/kernel",
        0,
        12,
        "weights",
        "dense",
    )


@pytest.mark.parametrize(
    ("name", "category", "layer"),
    [
        ("adam/dense_kernel_momentum", "optimizer", "dense"),
        ("x", "inputs", ""),
        ("loss{}", "other", ""),
        ("out{}", "other", ""),
        ("weight_copy{}", "activations", "dense"),
        ("forward{}", "other", ""),
        ("forward{0}", "activations", "dense"),
        ("forward{1}", "workspace", "dense"),
        ("dy{}", "activations", "dense"),
        ("dw{}", "gradients", "dense"),
    ],
)
def test_categories_and_layers(program, name, category, layer):
    (buffer,) = [b for b in program.buffers if b.name == name]
    assert (buffer.category, buffer.layer) == (category, layer)


def test_live_ranges(program):
    ranges = {b.name: (b.birth, b.death) for b in program.buffers}
    assert ranges["forward{0}"] == (4, 6)
    assert ranges["out{}"] == (0, 12)


def test_a_total_that_does_not_match_is_an_error():
    wrong = replace(NEW, report="Total bytes: 6193 (6.0KiB)\n")
    with pytest.raises(EngineError, match="6192 bytes, its own total is 6193"):
        read_program(wrong, STEP)


def test_no_total_is_an_error():
    with pytest.raises(EngineError, match="own total"):
        read_program(replace(NEW, report=""), STEP)


def test_no_live_ranges_are_an_error():
    with pytest.raises(EngineError, match="live ranges"):
        read_program(replace(NEW, live_range=""), STEP)


def test_a_value_outside_its_allocation_is_an_error():
    wrong = replace(NEW, assignment=ALLOCATIONS.replace("offset=3584", "offset=3585"))
    with pytest.raises(EngineError, match=r"forward\{\} ends outside allocation 6"):
        read_program(wrong, STEP)


def test_another_number_of_parameters_is_an_error():
    with pytest.raises(EngineError, match="takes 3 arrays, but the captured step has 2"):
        read_program(NEW, replace(STEP, parameters=STEP.parameters[:2]))


def test_unreadable_value_is_an_error():
    with pytest.raises(EngineError, match="could not be read at this line"):
        read_program(replace(NEW, assignment=ALLOCATIONS.replace("(size=512,offset=1536)", "(size=?)")), STEP)


def test_memory_of_the_host_does_not_count():
    host = (
        ALLOCATIONS
        + "allocation 7: size 64, color 5, preallocated-temp:\n value: <30 y @5> (size=64,offset=0): f32[16]{0}\n"
    )
    program = read_program(replace(NEW, assignment=host, report="Total bytes: 6192 (x)\n\nTotal bytes: 64 (x)\n"), STEP)
    assert program.total_bytes == 6188


def test_a_new_value_that_waits_for_its_variable_is_no_gradient():
    waiting = HLO.replace("tuple(%w2, %m2, %loss)", "tuple(%w3, %m2, %loss)").replace(
        "  %loss =", "  %w3 = f32[16,16]{1,0} copy(%w2)\n  %loss ="
    )
    sequence = LIVE_RANGE.replace("    11:loss\n    12:out", "    11:loss\n    12:out\n    13:w3")
    assigned = ALLOCATIONS.replace("<9 update{0} @0> (size=1024,offset=0)", "<9 w3 @0> (size=1024,offset=0)").replace(
        "dy @0> (size=512", "update{0} @0> (size=512"
    )
    program = read_program(DumpTexts(waiting, assigned, sequence, NEW.report), STEP)
    assert {b.name: b.category for b in program.buffers}["update{0}"] == "other"


LOOP = """\
HloModule jit_step, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }

%zero () -> f32[16,16] {
  %c = f32[] constant(0)
  ROOT %b = f32[16,16]{1,0} broadcast(%c), dimensions={}
}

%body (s: (s32[], f32[16,16])) -> (s32[], f32[16,16]) {
  %s = (s32[], f32[16,16]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %acc = f32[16,16]{1,0} get-tuple-element(%s), index=1
  %g = f32[16,16]{1,0} dot(%acc, %acc), lhs_contracting_dims={0}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/while/body/transpose(jvp(dense))/dot_general"}
  %sum = f32[16,16]{1,0} add(%acc, %g), metadata={op_name="jit(step)/while/body/add"}
  ROOT %next = (s32[], f32[16,16]{1,0}) tuple(%i, %sum)
}

%cond (t: (s32[], f32[16,16])) -> pred[] {
  %t = (s32[], f32[16,16]{1,0}) parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (w: f32[16,16]) -> f32[16,16] {
  %w = f32[16,16]{1,0} parameter(0)
  %n = s32[] constant(0)
  %zeros = f32[16,16]{1,0} fusion(), kind=kLoop, calls=%zero
  %start = (s32[], f32[16,16]{1,0}) tuple(%n, %zeros)
  %loop = (s32[], f32[16,16]{1,0}) while(%start), condition=%cond, body=%body, metadata={op_name="jit(step)/while"}
  %total = f32[16,16]{1,0} get-tuple-element(%loop), index=1
  ROOT %new = f32[16,16]{1,0} subtract(%w, %total)
}
"""


def test_gradients_that_a_loop_sums_up():
    assignment = """\
BufferAssignment:
allocation 0: size 1024, parameter 0, shape |f32[16,16]| at ShapeIndex {}, output shape is |f32[16,16]|, maybe-live-out:
 value: <0 w @0> (size=1024,offset=0): f32[16,16]{1,0}
 value: <9 new @0> (size=1024,offset=0): f32[16,16]{1,0}
allocation 1: size 2048, preallocated-temp:
 value: <1 zeros @0> (size=1024,offset=0): f32[16,16]{1,0}
 value: <2 s{1} (phi) @0> (size=1024,offset=0): f32[16,16]{1,0}
 value: <3 g @0> (size=1024,offset=1024): f32[16,16]{1,0}
 value: <4 sum @0> (size=1024,offset=0): f32[16,16]{1,0}
 value: <5 loop{1} (phi) @0> (size=1024,offset=0): f32[16,16]{1,0}

Total bytes used: 3072 (3.0KiB)
"""
    names = ["w", "zeros", "start", "t", "yes", "s", "i", "acc", "g", "sum", "next", "loop", "total", "new"]
    sequence = "".join(f"    {moment}:{name}\n" for moment, name in enumerate(names))
    live = f"HloLiveRange (max 14):\n  InstructionSequence:\n{sequence}  BufferLiveRange:\n    zeros{{}}:1-5\n    s{{1}}:5-9\n    g{{}}:8-9\n    sum{{}}:9-11\n    loop{{1}}:11-13\n"
    program = read_program(DumpTexts(LOOP, assignment, live), replace(STEP, parameters=STEP.parameters[:1]))
    temporaries = {b.name: b.category for b in program.buffers if b.allocation == 1}
    assert set(temporaries.values()) == {"gradients"}
    assert held_bytes(program)[8] == 3072
    assert held_bytes(program)[12] == 2048


@cache
def read_real(name):
    kept = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    dump = DumpTexts(kept["hlo"], kept["assignment"], kept["live_range"], kept["report"])
    parameters = tuple(
        Tensor(n, tuple(shape), dtype, role, layer) for n, shape, dtype, role, layer in kept["parameters"]
    )
    step = replace(STEP, framework=kept["framework"], parameters=parameters, layers=tuple(kept["layers"]))
    return step, read_program(dump, step)


@pytest.fixture(params=REAL)
def real(request):
    return read_real(request.param)


def test_real_parameters_are_as_large_as_they_were_captured(real):
    step, program = real
    for allocation in program.allocations:
        if allocation.parameter is not None:
            assert allocation.size_bytes == step.parameters[allocation.parameter].size_bytes


def test_real_curve_reaches_the_compilers_total(real):
    _, program = real
    peak = find_peak(program)
    assert 0 <= peak.gap_bytes < program.total_bytes / 1000


def test_real_weights_and_optimizer_are_shown_whole(real):
    step, program = real
    peak = find_peak(program)
    assert peak.by_category["weights"] == step.sum_bytes("weight") + step.sum_bytes("state")
    assert peak.by_category["optimizer"] == step.sum_bytes("optimizer")


def test_real_layers_are_found(real):
    step, program = real
    owned = {b.layer for b in program.buffers if b.category == "activations"}
    with_weights = {t.layer for t in step.parameters if t.role == "weight"}
    assert with_weights <= owned | {b.layer for b in program.buffers}
    assert owned <= {"", *step.layers}
    assert {b.layer for b in program.buffers if b.category == "gradients"} & with_weights


def test_real_flops_of_three_dense_layers():
    _, program = read_real("xla_0_9_tensorflow_mlp")
    products = 4096 * (1000 * 512 + 512 * 256 + 256 * 10)
    inputs_gradient = 4096 * (512 * 256 + 256 * 10)
    dots = 2 * (2 * products + inputs_gradient)
    assert dots <= program.flops < dots * 1.15


def test_load_dump_takes_the_largest_program_of_a_folder(tmp_path):
    for name, dump in (("module_1.small", replace(OLD, assignment="x")), ("module_2.jit_step", NEW)):
        stem = f"{name}.sm_9.0_gpu_after_optimizations"
        (tmp_path / f"{stem}.txt").write_text(dump.hlo)
        (tmp_path / f"{stem}-buffer-assignment.txt").write_text(dump.assignment)
        if dump.live_range:
            (tmp_path / f"{stem}-live-range.txt").write_text(dump.live_range)
            (tmp_path / f"{stem}-memory-usage-report.txt").write_text(dump.report)
    assert load_dump(tmp_path) == NEW


def test_load_dump_of_nothing_is_an_error(tmp_path):
    with pytest.raises(EngineError, match="without writing"):
        load_dump(tmp_path)
