"""FLOPs and moved bytes, against counts by hand."""

import pytest

from legroom.engines.xla.cost import Cost, count_costs
from legroom.engines.xla.hlo_text import parse_hlo


def costs_of(lines: str, computations: str = "") -> dict[str, Cost]:
    return count_costs(parse_hlo(f"HloModule m\n\n{computations}\nENTRY %main (a: f32[]) -> f32[] {{\n{lines}\n}}\n"))


MATRICES = "  %a = f32[8,16]{1,0} parameter(0)\n  %b = f32[16,4]{1,0} parameter(1)\n"


def test_dot_is_two_flops_for_each_multiply_add():
    cost = costs_of(
        MATRICES + "  ROOT %d = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )["d"]
    assert cost == Cost(flops=2 * 8 * 4 * 16, moved_bytes=4 * (8 * 16 + 16 * 4 + 8 * 4), launches=1)


def test_batched_dot():
    text = """  %a = f32[3,8,16]{2,1,0} parameter(0)
  %b = f32[3,16,4]{2,1,0} parameter(1)
  ROOT %d = f32[3,8,4]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"""
    assert costs_of(text)["d"].flops == 3 * 2 * 8 * 4 * 16


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul"])
def test_cublas(target):
    call = (
        f'  ROOT %d = (f32[8,4]{{1,0}}, s8[4194304]{{0}}) custom-call(%a, %b), custom_call_target="{target}", '
        'backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
    )
    assert costs_of(MATRICES + call)["d"].flops == 2 * 8 * 4 * 16


WINDOW = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f"
FORWARD_FLOPS = 2 * (2 * 10 * 10 * 6) * (3 * 3 * 5)


@pytest.mark.parametrize(
    ("target", "operands", "result"),
    [
        ("__cudnn$convForward", ("f32[2,10,10,5]", "f32[6,3,3,5]"), "f32[2,10,10,6]"),
        ("__cudnn$convBiasActivationForward", ("f32[2,10,10,5]", "f32[6,3,3,5]"), "f32[2,10,10,6]"),
        ("__cudnn$convBackwardInput", ("f32[2,10,10,6]", "f32[6,3,3,5]"), "f32[2,10,10,5]"),
        ("__cudnn$convBackwardFilter", ("f32[2,10,10,5]", "f32[2,10,10,6]"), "f32[6,3,3,5]"),
    ],
)
def test_the_three_convolutions_of_a_layer_cost_the_same(target, operands, result):
    text = f"""  %a = {operands[0]} parameter(0)
  %b = {operands[1]} parameter(1)
  ROOT %c = ({result}, u8[0]{{0}}) custom-call(%a, %b), {WINDOW}, custom_call_target="{target}\""""
    assert costs_of(text)["c"].flops == FORWARD_FLOPS


def test_depthwise_convolution_counts_one_input_feature():
    text = """  %a = f32[2,10,10,8]{3,2,1,0} parameter(0)
  %b = f32[3,3,1,8]{3,2,1,0} parameter(1)
  ROOT %c = f32[2,10,10,8]{3,2,1,0} convolution(%a, %b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=8"""
    assert costs_of(text)["c"].flops == 2 * (2 * 10 * 10 * 8) * 9


def test_zeros_between_the_inputs_of_a_strided_gradient_are_free():
    text = """  %a = f32[2,5,5,6]{3,2,1,0} parameter(0)
  %b = f32[3,3,6,5]{3,2,1,0} parameter(1)
  ROOT %c = f32[2,10,10,5]{3,2,1,0} convolution(%a, %b), window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"""
    assert costs_of(text)["c"].flops == 2 * (2 * 10 * 10 * 5) * (9 * 6) // 4


FUSED = """%fused (p0: f32[8,16], p1: f32[16,4]) -> f32[8,4] {
  %p0 = f32[8,16]{1,0} parameter(0)
  %p1 = f32[16,4]{1,0} parameter(1)
  %d = f32[8,4]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %t = f32[8,4]{1,0} tanh(%d)
  %b = f32[8,4]{1,0} bitcast(%t)
  ROOT %m = f32[8,4]{1,0} multiply(%b, %t)
}
"""


def test_fusion_counts_its_body_and_moves_only_its_ends():
    cost = costs_of(MATRICES + "  ROOT %f = f32[8,4]{1,0} fusion(%a, %b), kind=kCustom, calls=%fused", FUSED)["f"]
    assert cost == Cost(flops=2 * 8 * 4 * 16 + 2 * 32, moved_bytes=4 * (128 + 64 + 32), launches=1)


def test_reduction_counts_what_it_reduces():
    text = """  %a = f32[8,16]{1,0} parameter(0)
  %z = f32[] constant(0)
  ROOT %r = f32[8]{0} reduce(%a, %z), dimensions={1}, to_apply=%sum"""
    add = "%sum (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  %y = f32[] parameter(1)\n  ROOT %s = f32[] add(%x, %y)\n}\n"
    assert costs_of(text, add)["r"] == Cost(flops=128, moved_bytes=4 * (128 + 1 + 8), launches=1)


def test_views_are_free():
    text = """  %a = f32[8,16]{1,0} parameter(0)
  %b = f32[128]{0} bitcast(%a)
  %c = f32[128]{0} copy(%b)
  ROOT %t = (f32[128]{0}) tuple(%c)"""
    costs = costs_of(text)
    assert costs["b"] == costs["a"] == costs["t"] == Cost()
    assert costs["c"] == Cost(flops=0, moved_bytes=2 * 512, launches=1)


LOOP = """%body (s: (s32[], f32[64])) -> (s32[], f32[64]) {
  %s = (s32[], f32[64]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %v = f32[64]{0} get-tuple-element(%s), index=1
  %e = f32[64]{0} exponential(%v)
  ROOT %n = (s32[], f32[64]{0}) tuple(%i, %e)
}

%cond (s.1: (s32[], f32[64])) -> pred[] {
  %s.1 = (s32[], f32[64]{0}) parameter(0)
  ROOT %true = pred[] constant(true)
}
"""


@pytest.mark.parametrize(("config", "times"), [(', backend_config={"known_trip_count":{"n":"7"}}', 7), ("", 1)])
def test_loop_bodies_count_as_often_as_they_run(config, times):
    text = f"  %a = (s32[], f32[64]{{0}}) parameter(0)\n  ROOT %w = (s32[], f32[64]{{0}}) while(%a), condition=%cond, body=%body{config}"
    costs = costs_of(text, LOOP)
    assert costs["e"] == Cost(flops=64 * times, moved_bytes=512 * times, launches=times)
    assert costs["w"] == Cost()


def test_a_fused_slice_moves_the_slice():
    body = """%sliced (p0: f32[100,64], p1: s32[]) -> f32[1,64] {
  %p0 = f32[100,64]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %s = f32[1,64]{1,0} dynamic-slice(%p0, %p1, %zero), dynamic_slice_sizes={1,64}
}
"""
    text = """  %a = f32[100,64]{1,0} parameter(0)
  %i = s32[] parameter(1)
  ROOT %f = f32[1,64]{1,0} fusion(%a, %i), kind=kLoop, calls=%sliced"""
    assert costs_of(text, body)["f"].moved_bytes == 256 + 4 + 256


def test_an_update_in_place_moves_the_update():
    body = """%updated (p0: f32[100,64], p1: f32[1,64], p2: s32[]) -> f32[100,64] {
  %p0 = f32[100,64]{1,0} parameter(0)
  %p1 = f32[1,64]{1,0} parameter(1)
  %p2 = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %u = f32[100,64]{1,0} dynamic-update-slice(%p0, %p1, %p2, %zero)
}
"""
    text = """  %a = f32[100,64]{1,0} parameter(0)
  %b = f32[1,64]{1,0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %f = f32[100,64]{1,0} fusion(%a, %b, %i), kind=kLoop, calls=%updated"""
    assert costs_of(text, body)["f"].moved_bytes == 256 + 4 + 256


def test_cudnn_rnn_multiplies_every_weight_at_every_moment():
    text = """  %x = f32[4,10,8]{2,1,0} parameter(0)
  %h = f32[1,4,6]{2,1,0} parameter(1)
  %w = f32[400]{0} parameter(2)
  %n = s32[4]{0} parameter(3)
  ROOT %r = (f32[4,10,6]{2,1,0}, f32[1,4,6]{2,1,0}, f32[1,4,6]{2,1,0}, f32[99]{0}, f32[77]{0}) custom-call(%x, %h, %h, %w, %n), custom_call_target="cudnn_rnn_ffi\""""
    assert costs_of(text)["r"].flops == 2 * 400 * 4 * 10


def test_pooling_counts_its_window():
    text = """  %a = f32[2,8,8,3]{3,2,1,0} parameter(0)
  %z = f32[] constant(0)
  ROOT %p = f32[2,4,4,3]{3,2,1,0} reduce-window(%a, %z), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=%max"""
    assert costs_of(text)["p"].flops == 2 * 4 * 4 * 3 * 4
