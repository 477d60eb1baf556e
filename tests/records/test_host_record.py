"""A HostEstimate says whether it fits."""

from legroom.records.host import HostEstimate, HostPart


def made(high_bytes, limit_bytes):
    part = HostPart("arrays", 1, 2, high_bytes, "because")
    return HostEstimate(2, 1, high_bytes, limit_bytes, "ulimit", (part,))


def test_it_fits_when_its_upper_bound_does():
    assert made(10, 10).fits
    assert not made(11, 10).fits
