"""A user's own cards: what may be left out, and what is said of a wrong file."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.errors import InputError
from legroom.gpus import find, read_cards, target_description
from legroom.gpus.cardfile import _parse
from legroom.units import GIB

BRIEF = '[mine]\nname = "My card"\nmemory = "24GiB"\ncompute_capability = "8.6"\n'
FULL = (
    BRIEF
    + """\
aliases = ["big one"]
nominal = "25GiB"
sm_count = 10
clock_ghz = 1.5
bandwidth_gb_per_second = 500.5
l2 = "6MiB"
teraflops = { fp32 = 3.84, fp16 = 7.5 }
"""
)


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str, name: str = "cards.toml") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_file


def test_brief_card_keeps_what_is_given(write) -> None:
    (gpu,) = read_cards(write(BRIEF))
    assert (gpu.key, gpu.name, gpu.memory_bytes, gpu.compute_capability) == ("mine", "My card", 24 * GIB, (8, 6))


def test_brief_card_is_filled_from_the_nearest_of_its_compute_capability(write) -> None:
    (gpu,) = read_cards(write(BRIEF))
    donor = find("rtx3090")
    assert (gpu.sm_count, gpu.clock_ghz, gpu.l2_bytes, gpu.rates) == (
        donor.sm_count, donor.clock_ghz, donor.l2_bytes, donor.rates,
    )  # fmt: skip


def test_brief_card_says_what_was_assumed(write) -> None:
    (gpu,) = read_cards(write(BRIEF))
    assert gpu.assumed == ("sm_count", "clock_ghz", "bandwidth_bytes_per_second", "l2_bytes", "rates")


def test_only_what_is_missing_is_assumed(write) -> None:
    (gpu,) = read_cards(write(BRIEF + "sm_count = 84\n"))
    assert gpu.sm_count == 84
    assert "sm_count" not in gpu.assumed


def test_full_card_assumes_nothing(write) -> None:
    (gpu,) = read_cards(write(FULL))
    assert gpu.assumed == ()
    assert (gpu.nominal_bytes, gpu.bandwidth_bytes_per_second) == (25 * GIB, 500_500_000_000)
    assert gpu.rates == {"fp32": 3.84e12, "fp16": 7.5e12}


def test_users_memory_is_given(write) -> None:
    assert read_cards(write(BRIEF))[0].memory_source == "given"


def test_single_card_needs_no_heading(write) -> None:
    path = write(BRIEF.replace("[mine]\n", ""), "workstation.toml")
    assert find(path).key == "workstation"


def test_single_card_may_have_tables(write) -> None:
    path = write(BRIEF.replace("[mine]\n", "") + "[teraflops]\nfp32 = 20\n")
    assert find(path).rates == {"fp32": 20e12}


def test_compute_capability_may_be_a_number(write) -> None:
    assert read_cards(write(BRIEF.replace('"8.6"', "10.0")))[0].compute_capability == (10, 0)


def test_one_of_several_is_found_by_key_name_or_alias(write) -> None:
    path = write(FULL + BRIEF.replace("mine", "other").replace("My card", "Other card"))
    assert find(f"{path}:other").key == find(f"{path}:Other Card").key == "other"
    assert find(f"{path}:big-one").key == "mine"


def test_card_may_be_called_gpu(write) -> None:
    assert find(write(BRIEF.replace("[mine]", "[gpu]")) + ":gpu").key == "gpu"


def test_several_cards_need_a_name(write) -> None:
    path = write(BRIEF + BRIEF.replace("mine", "other"))
    with pytest.raises(InputError, match="2 cards: mine, other"):
        find(path)


def test_name_that_the_file_lacks(write) -> None:
    with pytest.raises(InputError, match="no card called 'theirs'; it has mine"):
        find(write(BRIEF) + ":theirs")


def test_quotes_in_a_name_are_escaped_for_xla(write) -> None:
    path = write(BRIEF.replace('"My card"', "'My \"card\"'"))
    assert r'device_description_str: "My \"card\""' in target_description(find(path))


@pytest.mark.parametrize(
    ("change", "field", "received", "right"),
    [
        (('name = "My card"', ""), "name", "missing", "a name in quotes"),
        (('"My card"', "3090"), "name", "received 3090", "a name in quotes"),
        (('"My card"', '" "'), "name", "received ' '", "a name in quotes"),
        (('memory = "24GiB"', ""), "memory", "missing", "a size"),
        (('"24GiB"', '"lots"'), "memory", "received 'lots'", "a size"),
        (('"24GiB"', "-1"), "memory", "received -1", "a size"),
        (('"24GiB"', "24.5"), "memory", "received 24.5", "a size"),
        (('compute_capability = "8.6"', ""), "compute_capability", "missing", "known: 6.0, 6.1"),
        (('"8.6"', '"8.5"'), "compute_capability", "received '8.5'", "known: 6.0, 6.1"),
        (('"8.6"', "true"), "compute_capability", "received True", "known: 6.0, 6.1"),
        (("sm_count = 10", "sm_count = 0"), "sm_count", "received 0", "a positive whole number"),
        (("sm_count = 10", "sm_count = 1.5"), "sm_count", "received 1.5", "a positive whole number"),
        (("clock_ghz = 1.5", "clock_ghz = inf"), "clock_ghz", "received inf", "a positive number"),
        (("clock_ghz = 1.5", "clock_ghz = true"), "clock_ghz", "received True", "a positive number"),
        (("= 500.5", "= 'fast'"), "bandwidth_gb_per_second", "received 'fast'", "a positive number"),
        (('"6MiB"', "[]"), "l2", "received []", "a size"),
        (("{ fp32 = 3.84, fp16 = 7.5 }", "4"), "teraflops", "received 4", "dense peaks"),
        (("fp32 = 3.84, fp16", "fp16"), "teraflops", "received {'fp16': 7.5}", "dense peaks"),
        (("fp16 = 7.5", "int8 = 7"), "teraflops", "'int8': 7", "known: fp64, fp32"),
        (("fp16 = 7.5", "fp16 = -7"), "teraflops", "'fp16': -7", "dense peaks"),
        (('["big one"]', '"big one"'), "aliases", "received 'big one'", "a list of names"),
        (('nominal = "25GiB"', 'nominal = ""'), "nominal", "received ''", "a size"),
        (("sm_count", "sm_cuont"), "sm_cuont", "no such field; received 10", "Did you mean 'sm_count'?"),
        (('["big one"]', '[]\nmemory_source = "guess"'), "memory_source", "received 'guess'", "log, nominal, given"),
    ],
)
def test_error_names_file_card_field_value_and_remedy(
    write, change: tuple[str, str], field: str, received: str, right: str
) -> None:
    path = write(FULL.replace(*change))
    with pytest.raises(InputError) as raised:
        read_cards(path)
    message, hint = raised.value.message, raised.value.hint or ""
    assert path in message
    assert f"card 'mine', field {field!r}" in message
    assert received in message
    assert right in hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "describes no card"),
        ("# nothing\n", "describes no card"),
        ("[mine\n", "not valid TOML"),
        (BRIEF + BRIEF, "not valid TOML"),
        ("mine = 3\n", "card 'mine': received 3, which is not a table"),
    ],
)
def test_file_without_cards(write, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_cards(write(text))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml.*No such file"):
        find(str(tmp_path / "nowhere.toml"))


def test_directory(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match="Cannot read"):
        find(str(tmp_path / "folder.toml"))


def test_path_with_a_null_byte() -> None:
    with pytest.raises(InputError, match="Cannot read"):
        find("a\0b.toml")


def test_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        find(str(tmp_path / "binary.toml"))


values = (
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.sampled_from(["'x'", "'8GiB'", "[]", "{}", "1.5", "nan"])
)


@given(st.dictionaries(st.sampled_from(["name", "memory", "sm_count", "l2", "teraflops", "aliases", "odd"]), values))
def test_any_table_is_read_or_refused_politely(table: dict[str, object]) -> None:
    lines = [f"{key} = {str(value).lower()}" for key, value in table.items() if value is not None]
    text = "\n".join(["[c]", *lines])
    with contextlib.suppress(InputError):
        assert _parse(text, "any.toml", "any", donors=(find("t4"),))[0].memory_bytes > 0
