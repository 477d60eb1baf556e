"""Bytes as people write and read them. The only place where a size becomes text or text a size."""

import re
from decimal import Decimal

from legroom.errors import InputError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB
DURATIONS = {"": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}

_FACTORS = {
    "": 1, "b": 1, "bytes": 1,
    "k": KIB, "kib": KIB, "m": MIB, "mib": MIB, "g": GIB, "gib": GIB, "t": TIB, "tib": TIB,
    "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
}  # fmt: skip
_SIZE = re.compile(r"\s*(?P<number>\d+(?:[_,]\d{3})*(?:\.\d+)?|\.\d+)\s*(?P<unit>[A-Za-z]*)\s*")


def parse_bytes(text: str | int) -> int:
    """`"8GiB"`, `"8G"`, `"7.5 GB"` or a number of bytes, as a positive number of bytes. K, M, G and T count in 1024s."""
    if isinstance(text, int) and not isinstance(text, bool):
        size_bytes = text
    else:
        match = _SIZE.fullmatch(text) if isinstance(text, str) else None
        factor = _FACTORS.get(match["unit"].lower()) if match else None
        if match is None or factor is None:
            raise InputError(
                f"Cannot read {text!r} as a size of memory.", "Write it as 8GiB, 7.5G, 900MiB, or a number of bytes."
            )
        size_bytes = int(Decimal(match["number"].replace("_", "").replace(",", "")) * factor)
    if not 0 < size_bytes < 2**63:
        raise InputError(f"{text!r} is no size that memory can have.", "Write it as 8GiB, for example.")
    return size_bytes


def format_bytes(size_bytes: int) -> str:
    """A size in the largest binary unit that leaves at least one in front of the point: `21.4 GiB`, `312 MiB`."""
    sign, size = ("-", -size_bytes) if size_bytes < 0 else ("", size_bytes)
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            value = size / factor
            return f"{sign}{value:.0f} {unit}" if value >= 100 else f"{sign}{value:.1f} {unit}"
    return f"{sign}{size} B"


def parse_duration(text: str | float) -> float:
    """Seconds from a number or a text such as "30s", "5min", "2h"."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(text).lower())
    factor = DURATIONS.get(match[2]) if match else None
    if match is None or factor is None:
        raise InputError(f"Expected a time such as 30s, 5min or 2h; received {text!r}.")
    return float(match[1]) * factor


def format_duration(seconds: float) -> str:
    """ "12 s", "3 min 20 s", "2 h 5 min"."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
