"""The HLO reader, on lines of every shape that XLA writes."""

import pytest

from legroom.engines.xla.hlo_text import Shape, parse_hlo, parse_shapes
from legroom.errors import EngineError

TEXT = """\
HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), {1}: (2, {}, must-alias) }, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{1,0}}

%fused_add (param_0: f32[8,4], param_1: f32[4]) -> f32[8,4] {
  %param_1 = f32[4]{0} parameter(1)
  %broadcast.1 = f32[8,4]{1,0} broadcast(%param_1), dimensions={1}
  %param_0 = f32[8,4]{1,0} parameter(0)
  ROOT %add.1 = f32[8,4]{1,0} add(%param_0, %broadcast.1), metadata={op_name="jit(step)/jvp(dense)/add" stack_frame_id=3}
}

%body (arg: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  ROOT %arg = (s32[], f32[8,4]{1,0}) parameter(0)
}

%cond (arg.1: (s32[], f32[8,4])) -> pred[] {
  %arg.1 = (s32[], f32[8,4]{1,0}) parameter(0)
  ROOT %c = pred[] constant(true)
}

ENTRY %main (x.1: f32[8,4], b.1: f32[4], z.1: c64[2]) -> (f32[8,4], f32[4]) {
  %x.1 = f32[8,4]{1,0} parameter(0), sharding={replicated}, metadata={op_name="state[0][1]"}
  %b.1 = f32[4]{0} parameter(1)
  %z.1 = c64[2]{0} parameter(2)
  %constant.3 = c64[2]{0} constant({(1, 2), (3, -4)}), metadata={op_name="seed"}
  %constant.4 = f32[1024]{0} constant({...})
  %fusion.1 = f32[8,4]{1,0} fusion(%x.1, %b.1), kind=kLoop, calls=%fused_add, metadata={op_name="jit(step)/add"}
  %custom-call.1 = (f32[8,4]{1,0}, u8[256]{0}, /*index=2*/(s4[3]{0:E(4)}, bf16[2,3])) custom-call(%fusion.1, %b.1), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"alpha":1}}
  %get-tuple-element.1 = f32[8,4]{1,0} get-tuple-element(%custom-call.1), index=0
  %copy.1 = s32[] copy(%i)
  %tuple.1 = (s32[], f32[8,4]{1,0}) tuple(%copy.1, /*index=1*/%get-tuple-element.1)
  %while.1 = (s32[], f32[8,4]{1,0}) while(%tuple.1), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %conditional.1 = f32[4]{0} conditional(%copy.1, %b.1, %b.1), branch_computations={%fused_add, %cond}
  ROOT %tuple.2 = (f32[8,4]{1,0}, f32[4]{0}) tuple(%fusion.1, %b.1)
}
"""


@pytest.fixture(scope="module")
def module():
    return parse_hlo(TEXT)


def test_computations_and_their_roots(module):
    assert list(module.computations) == ["fused_add", "body", "cond", "main"]
    assert module.entry.name == "main"
    assert module.entry.root.name == "tuple.2"
    assert module.computations["body"].root.opcode == "parameter"


def test_parameters_by_number(module):
    assert {n: i.name for n, i in module.entry.parameters.items()} == {0: "x.1", 1: "b.1", 2: "z.1"}


def test_aliases_of_results_and_parameters(module):
    assert module.aliases == {0: 0, 1: 2}


def test_alias_of_a_result_that_is_no_tuple():
    text = "HloModule m, input_output_alias={ {}: (3, {}, may-alias) }\n\nENTRY %e () -> f32[] {\n  ROOT %c = f32[] constant(1)\n}\n"
    assert parse_hlo(text).aliases == {0: 3}


def test_instruction_fields(module):
    fusion = module.entry.by_name["fusion.1"]
    assert (fusion.opcode, fusion.operands, fusion.called) == ("fusion", ("x.1", "b.1"), ("fused_add",))
    assert fusion.op_name == "jit(step)/add"
    assert not fusion.is_tuple


def test_tuple_shapes_are_read_to_their_leaves(module):
    call = module.entry.by_name["custom-call.1"]
    assert call.is_tuple
    assert [s.size_bytes for s in call.shapes] == [128, 256, 2, 12]
    assert call.target == "__cublas$gemm"
    assert call.operands == ("fusion.1", "b.1")


def test_constants_have_no_operands_and_keep_their_metadata(module):
    constant = module.entry.by_name["constant.3"]
    assert constant.operands == ()
    assert constant.op_name == "seed"
    assert module.entry.by_name["constant.4"].size_bytes == 4096


def test_called_computations_of_loops_and_branches(module):
    assert module.entry.by_name["while.1"].called == ("cond", "body")
    assert module.entry.by_name["conditional.1"].called == ("fused_add", "cond")


def test_comments_between_operands(module):
    assert module.entry.by_name["tuple.1"].operands == ("copy.1", "get-tuple-element.1")


def test_attributes(module):
    assert module.computations["fused_add"].by_name["broadcast.1"].attribute("dimensions") == "1"
    assert module.entry.by_name["get-tuple-element.1"].attribute("index") == "0"
    assert module.entry.by_name["fusion.1"].attribute("kind") == "kLoop"
    assert module.entry.by_name["fusion.1"].attribute("missing") is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[2,3]{1,0}", 24),
        ("bf16[5]", 10),
        ("pred[7]{0}", 7),
        ("u64[]", 8),
        ("c128[2]", 32),
        ("f8e4m3fn[9]", 9),
        ("s4[9]{0:E(4)}", 5),
        ("s4[9]", 9),
        ("f32[<=10]", 40),
        ("f32[0]", 0),
    ],
)
def test_sizes(text, size):
    (shape,) = parse_shapes(text)
    assert shape.size_bytes == size


def test_shape_of_a_scalar():
    assert parse_shapes("f32[]") == (Shape("f32", (), 4),)


def test_homes_find_every_instruction(module):
    assert module.homes["add.1"].name == "fused_add"


def test_text_without_entry_is_an_error():
    with pytest.raises(EngineError, match="no ENTRY"):
        parse_hlo("HloModule nothing\n")


def test_unreadable_line_is_an_error():
    with pytest.raises(EngineError, match="could not be read at this line"):
        parse_hlo("HloModule m\n\nENTRY %e () -> f32[] {\n  %broken = f32[2\n}\n")
