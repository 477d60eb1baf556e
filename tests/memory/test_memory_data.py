"""Data on the device, on top of a step."""

from hypothesis import given
from hypothesis import strategies as st
from made_up_programs import make_program, programs

from legroom.memory.data import DeviceData, with_data
from legroom.memory.estimate import Bounds, Target, assemble
from legroom.records.step import Step

STEP = Step("tensorflow", "2.21.0", "3.15.1", "train.py", "graph", "", 8, ())
TARGET = Target("t4", 1000, "op", "2.21.0")
BOUNDS = Bounds(10, 30)


@given(programs, st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), max_size=3))
def test_everything_is_lifted_alike_and_still_sums_up(program, spans):
    bare = assemble(STEP, program, TARGET, BOUNDS)
    data = [DeviceData("x", low, low + more, low + more + most, "why") for low, more, most in spans]
    size = sum(item.size_bytes for item in data)
    found = with_data(bare, data)
    assert found.peak_bytes == bare.peak_bytes + size
    assert sum(found.breakdown.values()) == found.peak_bytes
    assert sum(layer.peak_bytes for layer in found.layers) == found.peak_bytes
    assert [point.held_bytes for point in found.curve] == [point.held_bytes + size for point in bare.curve]
    assert found.low_bytes == bare.low_bytes + sum(item.low_bytes for item in data)
    assert found.high_bytes == bare.high_bytes + sum(item.high_bytes for item in data)


def test_only_what_matters_is_worth_a_word():
    bare = assemble(STEP, make_program([]), TARGET, BOUNDS)
    large = DeviceData("arrays given to fit()", 10**6, 10**6, 10**6, "they are on the GPU")
    found = with_data(bare, [large, DeviceData("labels", 10, 10, 10, "too")])
    assert [note for note in found.notes if "data on the device" in note] == [
        "data on the device: 977 KiB, arrays given to fit(): they are on the GPU"
    ]
