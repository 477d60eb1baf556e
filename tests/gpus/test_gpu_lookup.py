"""What people call a card, and which one they get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.errors import InputError
from legroom.gpus import Gpu, catalogue, find
from legroom.gpus.lookup import _fold

CARDS = catalogue()
every_card = pytest.mark.parametrize("gpu", CARDS, ids=lambda gpu: gpu.key)


@every_card
def test_found_by_key(gpu: Gpu) -> None:
    assert find(gpu.key) is gpu


@every_card
def test_found_by_aliases(gpu: Gpu) -> None:
    assert all(find(alias) is gpu for alias in gpu.aliases)


@every_card
def test_found_by_the_drivers_name(gpu: Gpu) -> None:
    namesakes = [other for other in CARDS if other.name == gpu.name]
    assert find(gpu.name) is namesakes[0]


def test_keys_and_aliases_are_unambiguous() -> None:
    spellings = [_fold(text) for gpu in CARDS for text in (gpu.key, *gpu.aliases)]
    assert len(set(spellings)) == len(spellings)


def test_no_name_is_the_key_or_alias_of_another_card() -> None:
    for gpu in CARDS:
        assert find(gpu.name).name == gpu.name


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("v100", "v100-16gb"),
        ("a100", "a100-40gb"),
        ("h100", "h100"),
        ("A100 80GB", "a100-80gb"),
        ("rtx 3080", "rtx3080"),
        ("rtx 3080 laptop", "rtx3080-laptop-16gb"),
        ("rtx 4060 ti", "rtx4060-ti"),
        ("p100", "p100"),
    ],
)
def test_short_name_is_the_commonest_card(name: str, key: str) -> None:
    assert find(name).key == key


@pytest.mark.parametrize(
    "name",
    ["rtx4090", "RTX 4090", "rtx-4090", " NVIDIA GeForce RTX 4090 ", "geforce_rtx_4090", "4090", "Rtx4090 24GB"],
)
def test_spelling_does_not_matter(name: str) -> None:
    assert find(name).key == "rtx4090"


@pytest.mark.parametrize("name", ["Tesla T4", "NVIDIA T4", "nvidia-tesla-t4", "T4"])
def test_tesla_may_be_left_out(name: str) -> None:
    assert find(name).key == "t4"


def test_mobile_means_laptop() -> None:
    assert find("RTX 3070 Mobile").key == "rtx3070-laptop"


@given(st.sampled_from(CARDS), st.data())
def test_case_and_separators_do_not_matter(gpu: Gpu, data: st.DataObject) -> None:
    separator = data.draw(st.sampled_from(["", " ", "-", "_", "  "]))
    text = gpu.key.replace("-", separator)
    assert find("".join(data.draw(st.sampled_from([letter.upper(), letter])) for letter in text)) is gpu


def test_unknown_name_suggests_three() -> None:
    with pytest.raises(InputError, match="No GPU is called 'rtx4091'") as raised:
        find("rtx4091")
    suggested = raised.value.message.rpartition("nearest are ")[2].rstrip(".").split(", ")
    assert len(suggested) == 3
    assert "rtx4090" in suggested


def test_suggestions_are_keys_that_work() -> None:
    with pytest.raises(InputError) as raised:
        find("gefroce rtx 3090ti super")
    suggested = raised.value.message.rpartition("nearest are ")[2].rstrip(".").split(", ")
    assert [find(key).key for key in suggested] == suggested


def test_unknown_name_points_to_the_list() -> None:
    with pytest.raises(InputError) as raised:
        find("mi300x")
    assert "`legroom gpus`" in (raised.value.hint or "")


@pytest.mark.parametrize("name", ["", "   ", "\n"])
def test_empty_name(name: str) -> None:
    with pytest.raises(InputError, match="needs a name"):
        find(name)


@pytest.mark.parametrize("name", ["nvidia", "gpu", "---", "rtx", "显卡", "x" * 5000])
def test_name_that_says_nothing(name: str) -> None:
    with pytest.raises(InputError, match="nearest are"):
        find(name)
