"""What XLA tries before the first step, against what an H200 was asked for."""

from dataclasses import replace

import pytest

from legroom.engines.xla.convolutions import Array, Convolution
from legroom.engines.xla.hlo_text import parse_hlo
from legroom.engines.xla.trials import transform_bytes, trial_of, trials_of
from legroom.records import Trial
from legroom.units import MIB

POINTWISE = Convolution(
    kind="Forward", x=Array("f32", (32, 37, 37, 728)), y=Array("f32", (32, 37, 37, 728)), filter=Array("f32", (728, 1, 1, 728)),
    x_channels=728, y_channels=728, channels_last=True, kernel=(1, 1), dilated_filter=False, grouped=False, batch=32, spatial=(37, 37),
)  # fmt: skip


def test_the_transform_of_an_xception_is_what_the_card_was_asked_for():
    """17.65 GiB, of which 32 MiB are the library's own."""
    assert transform_bytes(POINTWISE) == pytest.approx(18_953_696_256, rel=0.005)


@pytest.mark.parametrize("change", [{"strided": True}, {"grouped": True}, {"dilated_filter": True}])
def test_there_is_no_transform_for(change):
    assert transform_bytes(replace(POINTWISE, **change)) == 0


def test_images_that_are_too_large_are_transformed_in_tiles():
    large = replace(POINTWISE, x_channels=64, y_channels=64, kernel=(3, 3), spatial=(256, 256))
    assert transform_bytes(large) == 8 * 32 * 32 * (32 * 128 * 81 + 64 * 64)


@pytest.mark.parametrize(
    ("kind", "inputs", "output"), [("Forward", "xf", "y"), ("BackwardInput", "yf", "x"), ("BackwardFilter", "xy", "f")]
)
def test_what_goes_in_and_what_comes_out(kind, inputs, output):
    sizes = {"x": 4000, "y": 8000, "f": 400}
    arrays = {name: Array("f32", (size // 4,)) for name, size in sizes.items()}
    made = replace(POINTWISE, kind=kind, x=arrays["x"], y=arrays["y"], filter=arrays["f"], strided=True)
    assert trial_of(made) == Trial(tuple(sizes[name] for name in inputs), sizes[output], 0)


HLO = """HloModule step

ENTRY %main (a: f32[1024,512], b: f32[512,256]) -> f32[1024,256] {
  %a = f32[1024,512]{1,0} parameter(0)
  %b = f32[512,256]{1,0} parameter(1)
  %one = (f32[1024,256]{1,0}, s8[33554432]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm"
  %two = (f32[1024,256]{1,0}, s8[33554432]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm"
  ROOT %result = f32[1024,256]{1,0} get-tuple-element(%two), index=0
}
"""


def test_a_product_is_tried_once_for_its_sizes():
    assert trials_of(parse_hlo(HLO), ()) == (Trial((2 * MIB, MIB // 2), MIB, 32 * MIB),)
