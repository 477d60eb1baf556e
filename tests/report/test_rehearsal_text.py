"""A rehearsal as people and programs read it."""

import io
from dataclasses import replace

from rich.console import Console

from legroom.records.rehearsal import OomFact, Rehearsal, rehearsal_from_json, rehearsal_to_json
from legroom.report.rehearsal import rehearsal_text, rehearsal_view
from legroom.units import GIB, MIB

FITS = Rehearsal(64, "graph", 2 * GIB, 300 * MIB, 320 * MIB, (320 * MIB, 300 * MIB, 290 * MIB), 40 * MIB, seconds=3.21)
FACT = OomFact("net/second/Relu", (64, 60, 60, 32), "float32", 29491200, "OOM when allocating", step=2)
FULL = Rehearsal(64, "graph", 40 * MIB, out_of_memory=FACT)


def printed(rehearsal):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(rehearsal_text(rehearsal))
    return console.export_text()


def test_one_that_fits():
    text = printed(FITS)
    assert "Batch 64 took 300 MiB at its peak (first step 320 MiB, between steps 40.0 MiB)" in text
    assert "It fits into the 2.0 GiB that it was given, with 1.7 GiB to spare." in text


def test_one_that_does_not_fit_says_who_asked_for_what():
    text = printed(FULL)
    assert "ran out of memory in training step 2" in text
    assert "net/second/Relu asked for 28.1 MiB, a float32 of shape (64, 60, 60, 32)" in text


def test_one_that_the_system_has_killed_does_not_blame_the_limit():
    killed = replace(FULL, out_of_memory=OomFact("", None, "", None, "killed", "building", signal="SIGKILL"))
    text = printed(killed)
    assert "was ended before its first step" in text
    assert "does not fit into this machine" in text


def test_as_json_and_back():
    for rehearsal in (FITS, FULL):
        assert rehearsal_from_json(rehearsal_to_json(rehearsal)) == rehearsal
    view = rehearsal_view(FULL)
    assert (view["schema"], view["fits"], view["out_of_memory"]["shape"]) == (1, False, [64, 60, 60, 32])
    assert rehearsal_view(FITS)["step_peaks_bytes"] == [320 * MIB, 300 * MIB, 290 * MIB]
