"""What people read, from made-up estimates."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from legroom.records import CurvePoint, Estimate, Failure, LayerShare
from legroom.report.text import estimate_text
from legroom.report.view import estimate_view
from legroom.units import GIB, MIB

FITTING = Estimate(
    engine="xla", engine_version="jaxlib 0.9.0", framework="tensorflow", framework_version="2.21.0", execution="xla", gpu="Tesla T4",
    batch=64, peak_bytes=10 * GIB, low_bytes=9 * GIB, high_bytes=11 * GIB, program_bytes=10 * GIB, resident_bytes=0, usable_bytes=13 * GIB,
    breakdown={"weights": 2 * GIB, "activations": 8 * GIB - MIB, "other": MIB, "gradients": 0},
    layers=(*(LayerShare(f"layer[{n}]", GIB) for n in range(10)), LayerShare("(other)", 0)),
    curve=(CurvePoint(0, "start", GIB), CurvePoint(9, "end", 10 * GIB)), notes=("a note",),
)  # fmt: skip


def shown(estimate):
    console = Console(width=120, color_system=None, record=True, file=io.StringIO())
    console.print(estimate_text(estimate))
    return console.export_text()


def test_what_fits_says_how_much_is_to_spare():
    text = shown(FITTING)
    assert "Batch 64 needs 10.0 GiB at its peak (between 9.0 GiB and 11.0 GiB)" in text
    assert "It fits into the 13.0 GiB that TensorFlow can use of Tesla T4, with 2.0 GiB to spare." in text


def test_what_does_not_fit_says_how_much_is_too_much():
    assert "It does not fit into the 8.0 GiB" in shown(replace(FITTING, usable_bytes=8 * GIB))
    assert "2.0 GiB too much" in shown(replace(FITTING, usable_bytes=8 * GIB))


def test_what_fits_only_by_luck_is_not_called_fitting():
    estimate = replace(FITTING, usable_bytes=int(10.5 * GIB))
    assert not estimate.fits
    assert "It may not fit" in shown(estimate)


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        ({"is_fragmentation": True}, "It does not fit into the 13.0 GiB that TensorFlow can use of Tesla T4: the free memory is torn."),
        ({"is_fragmentation": False}, "what is left over is handed out whole."),
        ({"is_fragmentation": False, "more_bytes": 70 * MIB}, "It may not fit into the 13.0 GiB that TensorFlow can use of Tesla T4: it is too close to say."),
        ({"is_fragmentation": False, "more_bytes": 70 * MIB}, "If the card's program is larger by 70.0 MiB, as it may be, it runs out at kernel"),
        ({"is_fragmentation": True, "less_bytes": 70 * MIB}, "With 70.0 MiB less, which is what the simulation may be off by, it runs out at kernel"),
    ],
)  # fmt: skip
def test_why_a_step_finds_no_room_though_its_peak_would(failure, says):
    found = Failure("kernel", 4, 70 * MIB, 1, **failure)
    assert says in " ".join(shown(replace(FITTING, out_of_memory=found)).split())


@pytest.mark.parametrize(
    ("found", "says"), [(160, "The largest batch that fits is 160."), (0, "not even one example fits")]
)
def test_the_largest_batch_is_said_when_it_was_asked_for(found, says):
    assert says in shown(replace(FITTING, max_batch=found))
    assert "largest batch" not in shown(FITTING)


def test_layers_with_brackets_in_their_names_are_shown_as_they_are():
    assert "layer[3]" in shown(FITTING)


def test_parts_of_nothing_are_left_out_and_notes_are_not():
    text = shown(FITTING)
    assert "gradients" not in text
    assert "note: a note" in text


def test_the_json_has_integers_of_bytes_and_the_same_sums():
    view = json.loads(json.dumps(estimate_view(FITTING)))
    assert view["schema"] == 1
    assert sum(view["breakdown"].values()) == view["peak_bytes"]
    assert view["breakdown"]["weights_bytes"] == 2 * GIB
    assert view["first_step_peak_bytes"] is None
