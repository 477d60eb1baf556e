"""The description of a card that XLA compiles for."""

import re
from pathlib import Path

import pytest

from legroom.errors import InputError
from legroom.gpus import Gpu, catalogue, find, target_description
from legroom.units import GIB

every_card = pytest.mark.parametrize("gpu", catalogue(), ids=lambda gpu: gpu.key)
_TOKEN = re.compile(r'\s*(?:(?P<field>\w+)\s*:\s*(?P<value>"(?:[^"\\]|\\.)*"|[\d.]+)|(?P<open>\w+)\s*\{|(?P<close>\}))')


def parse(text: str) -> dict[str, object]:
    """The text proto as nested dictionaries; fails on anything that is not balanced."""
    stack: list[dict[str, object]] = [{}]
    position = 0
    while text[position:].strip():
        token = _TOKEN.match(text, position)
        assert token, text[position : position + 40]
        position = token.end()
        if token["close"]:
            assert len(stack) > 1
            stack.pop()
        elif token["open"]:
            inner: dict[str, object] = {}
            stack[-1][token["open"]] = inner
            stack.append(inner)
        else:
            stack[-1][token["field"]] = token["value"]
    assert len(stack) == 1
    return stack[0]


def test_h100_is_the_probe_that_xla_took() -> None:
    probe = Path(__file__).with_name("h100.txtpb").read_text(encoding="utf-8")
    assert target_description(find("h100")) == probe


@every_card
def test_is_balanced_and_has_every_field_of_the_probe(gpu: Gpu) -> None:
    probe = parse(Path(__file__).with_name("h100.txtpb").read_text(encoding="utf-8"))
    described = parse(target_description(gpu))
    assert described.keys() == probe.keys()
    assert described["gpu_device_info"].keys() == probe["gpu_device_info"].keys()  # type: ignore[attr-defined]


@every_card
def test_numbers_are_plain(gpu: Gpu) -> None:
    info = parse(target_description(gpu))["gpu_device_info"]
    whole = {name: text for name, text in info.items() if isinstance(text, str) and name != "clock_rate_ghz"}  # type: ignore[attr-defined]
    assert all(text.isdigit() for text in whole.values())


def test_memory_is_the_cards_total() -> None:
    assert f"device_memory_size: {find('t4').memory_bytes}\n" in target_description(find("t4"))


def test_memory_may_be_given() -> None:
    assert f"device_memory_size: {8 * GIB}\n" in target_description(find("t4"), 8 * GIB)


@pytest.mark.parametrize("memory_bytes", [0, -1])
def test_memory_must_be_positive(memory_bytes: int) -> None:
    with pytest.raises(InputError, match="must be positive"):
        target_description(find("t4"), memory_bytes)


@pytest.mark.parametrize(
    ("key", "per_sm", "optin", "threads", "cores"),
    [
        ("p100", 65536, 49152, 2048, 64),
        ("gtx1080-ti", 98304, 49152, 2048, 128),
        ("v100-16gb", 98304, 98304, 2048, 64),
        ("t4", 65536, 65536, 1024, 64),
        ("a100-40gb", 167936, 166912, 2048, 64),
        ("rtx3090", 102400, 101376, 1536, 128),
        ("l4", 102400, 101376, 1536, 128),
        ("b200", 233472, 232448, 2048, 128),
        ("rtx5090", 102400, 101376, 1536, 128),
    ],
)
def test_limits_follow_the_compute_capability(key: str, per_sm: int, optin: int, threads: int, cores: int) -> None:
    info = parse(target_description(find(key)))["gpu_device_info"]
    names = ("shared_memory_per_core", "shared_memory_per_block_optin", "threads_per_core_limit", "fpus_per_core")
    assert [info[name] for name in names] == [str(number) for number in (per_sm, optin, threads, cores)]  # type: ignore[index]
