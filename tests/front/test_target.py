"""Which GPU of this machine is meant."""

import pathlib

import pytest

from legroom.front.target import choose_card, first_visible

LISTED = "NVIDIA H200, GPU-11aa-22\nTesla T4, GPU-33bb-44\n"


@pytest.mark.parametrize(
    ("visible", "name"),
    [
        (None, "NVIDIA H200"),
        ("0", "NVIDIA H200"),
        ("1,0", "Tesla T4"),
        ("GPU-33bb", "Tesla T4"),
        ("", None),
        ("-1", None),
        ("7", None),
        ("GPU-99", None),
    ],
)
def test_cuda_visible_devices_says_which_card_comes_first(visible: str | None, name: str | None) -> None:
    assert first_visible(LISTED, visible) == name


def test_a_card_that_is_hidden_is_not_the_one(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Tesla T4, GPU-33bb-44'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert choose_card(None, None).label == "Tesla T4"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert choose_card(None, None).is_cpu
