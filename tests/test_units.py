import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.errors import InputError
from legroom.units import GIB, MIB, format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 8 * GIB), ("8G", 8 * GIB), ("7.5 gb", 7_500_000_000), ("512mib", 512 * MIB), ("1,024", 1024), (77, 77)],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "8 gigs", "-3GiB", "0", "1.2.3G", "nan", 0, -1, None, 1.5, True, "9" * 400 + "G"]
)
def test_unreadable_sizes_are_refused_with_an_example(text):
    with pytest.raises(InputError, match="8GiB"):
        parse_bytes(text)


@given(st.integers(min_value=1, max_value=2**50))
def test_what_is_printed_reads_back_within_a_twentieth(size):
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.05)


def test_a_size_keeps_one_digit_below_a_hundred():
    assert format_bytes(int(21.44 * GIB)) == "21.4 GiB"
    assert format_bytes(312 * MIB) == "312 MiB"
    assert format_bytes(-2 * GIB) == "-2.0 GiB"
