"""Every log of the manifest: the cause, and every number that the text holds, exactly."""

import json
from pathlib import Path

import pytest

from legroom.explain.diagnose import explain_stream
from legroom.records.diagnosis import CAUSES
from legroom.report.diagnosis_json import diagnosis_view

LOGS = Path(__file__).parents[1] / "data" / "logs"
ENTRIES = json.loads((LOGS / "manifest.json").read_text())
NOT_NUMBERS = ("file", "cause", "made")


def read(entry):
    with (LOGS / entry["file"]).open("rb") as stream:
        return diagnosis_view(explain_stream(stream, entry["file"]))


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["file"] for entry in ENTRIES])
def test_every_number_is_exact(entry):
    found = read(entry)
    expected = {name: value for name, value in entry.items() if name not in NOT_NUMBERS}
    assert {name: found[name] for name in expected} == expected


def test_the_causes_are_right():
    wrong = [
        (entry["file"], entry["cause"], found) for entry in ENTRIES if (found := read(entry)["cause"]) != entry["cause"]
    ]
    assert len(wrong) <= 0.05 * len(ENTRIES), wrong


def test_there_are_enough_of_each():
    assert len(ENTRIES) >= 40
    assert sum(entry["made"] == "run" for entry in ENTRIES) >= 40
    for cause in CAUSES:
        assert sum(entry["cause"] == cause for entry in ENTRIES) >= 2, cause
