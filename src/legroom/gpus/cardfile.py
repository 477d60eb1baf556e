"""Reading cards from TOML: Legroom's own catalogue, and the files in which users describe theirs.

A file holds one table a card, headed by its key; or a single card at its top level, whose key is the file's name.
"""

import difflib
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from legroom.errors import InputError
from legroom.gpus.card import PRECISIONS, Gpu
from legroom.gpus.limits import LIMITS
from legroom.units import parse_bytes

Table = Mapping[str, Any]

_SOURCES = ("log", "nominal", "given")
_REQUIRED = ("name", "memory", "compute_capability")
# How a field is called in the file and in `Gpu`, for those that a similar card may stand in for.
_FILLED = {
    "sm_count": "sm_count",
    "clock_ghz": "clock_ghz",
    "bandwidth_gb_per_second": "bandwidth_bytes_per_second",
    "l2": "l2_bytes",
    "teraflops": "rates",
}
_EXAMPLE = '  [mycard]\n  name = "My card"\n  memory = "24GiB"\n  compute_capability = "8.6"'
_KNOWN = (*_REQUIRED, "aliases", "nominal", "memory_source", *_FILLED)


@cache
def catalogue() -> tuple[Gpu, ...]:
    """Every card that Legroom knows, in the catalogue's order."""
    text = (files("legroom.gpus") / "catalogue.toml").read_text(encoding="utf-8")
    return _parse(text, "catalogue.toml", "catalogue", donors=())


def read_cards(path: str | Path) -> tuple[Gpu, ...]:
    """The cards in a user's file; what it leaves out comes from the nearest card of the same compute capability."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"The GPU file {str(path)!r} is not UTF-8 text.", "Save it as a UTF-8 TOML file.") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte in it
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"Cannot read the GPU file {str(path)!r}: {reason}.", "Check its path.") from error
    return _parse(text, str(path), path.stem, donors=catalogue())


def _parse(text: str, source: str, stem: str, donors: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not valid TOML: {error}.", f"A card looks like this:\n{_EXAMPLE}") from error
    if not document:
        raise InputError(f"{source} describes no card.", f"A card looks like this:\n{_EXAMPLE}")
    single = any(name in _KNOWN and not isinstance(value, dict) for name, value in document.items())
    tables = {stem: document} if single else document
    return tuple(_card(key, table, source, donors) for key, table in tables.items())


class _Reader:
    """Takes the fields of one card's table, and says what is wrong with them."""

    def __init__(self, key: str, table: Table, source: str) -> None:
        self.key, self.table, self.source = key, table, source

    def error(self, name: str, right: str) -> InputError:
        value = self.table.get(name)
        received = f"received {value!r}" if name in self.table else "it is missing"
        return InputError(f"{self.source}: card {self.key!r}, field {name!r}: {received}.", f"Write {right}.")

    def text(self, name: str) -> str:
        value = self.table.get(name)
        if not isinstance(value, str) or not value.strip():
            raise self.error(name, f'a name in quotes: {name} = "NVIDIA GeForce RTX 3090"')
        return value.strip()

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.table.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise self.error(name, f'a list of names: {name} = ["my-card"]')
        return tuple(value)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.table.get(name, default)
        if value not in choices:
            raise self.error(name, "one of " + ", ".join(choices))
        return str(value)

    def size(self, name: str) -> int:
        try:
            return parse_bytes(self.table.get(name, ""))
        except InputError as error:
            raise self.error(name, f'a size: {name} = "24GiB", or a number of bytes') from error

    def number(self, name: str) -> float:
        value = self.table.get(name)
        if not _positive(value):
            raise self.error(name, f"a positive number: {name} = 1.5")
        return float(value)  # type: ignore[arg-type]

    def count(self, name: str) -> int:
        value = self.table.get(name)
        if not _positive(value) or not isinstance(value, int):
            raise self.error(name, f"a positive whole number: {name} = 82")
        return value

    def capability(self, name: str) -> tuple[int, int]:
        value = self.table.get(name)
        text = str(value) if isinstance(value, str | float) else ""
        for known in LIMITS:
            if text.strip() == f"{known[0]}.{known[1]}":
                return known
        listed = ", ".join(f"{major}.{minor}" for major, minor in LIMITS)
        raise self.error(name, f'one that Legroom knows: {name} = "8.6" (known: {listed})')

    def rates(self, name: str) -> dict[str, float]:
        value = self.table.get(name)
        right = f"dense peaks in TFLOP/s: {name} = {{ fp32 = 35.6, fp16 = 71.2 }} (known: {', '.join(PRECISIONS)})"
        if not isinstance(value, dict) or "fp32" not in value or not set(value) <= set(PRECISIONS):
            raise self.error(name, right)
        if not all(_positive(rate) for rate in value.values()):
            raise self.error(name, right)
        return {precision: float(round(rate * 1e12)) for precision, rate in value.items()}


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15


def _card(key: str, table: object, source: str, donors: tuple[Gpu, ...]) -> Gpu:
    if not isinstance(table, dict):
        raise InputError(
            f"{source}: card {key!r}: received {table!r}, which is not a table.", f"A card looks like this:\n{_EXAMPLE}"
        )
    for name in table:
        if name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            raise InputError(
                f"{source}: card {key!r}, field {name!r}: no such field; received {table[name]!r}.",
                f"{meant}The fields are {', '.join(_KNOWN)}.",
            )
    read = _Reader(key, table, source)
    name, memory_bytes = read.text("name"), read.size("memory")
    capability = read.capability("compute_capability")
    readers: dict[str, Callable[[str], object]] = {
        "sm_count": read.count,
        "clock_ghz": read.number,
        "bandwidth_gb_per_second": lambda field: round(read.number(field) * 1e9),
        "l2": read.size,
        "teraflops": read.rates,
    }
    donor = _nearest(donors, capability, memory_bytes)
    values: dict[str, Any] = {}
    assumed = []
    for field, attribute in _FILLED.items():
        if field in table or donor is None:
            values[attribute] = readers[field](field)
        else:
            values[attribute] = getattr(donor, attribute)
            assumed.append(attribute)
    return Gpu(
        key=key,
        name=name,
        aliases=read.texts("aliases"),
        compute_capability=capability,
        memory_bytes=memory_bytes,
        nominal_bytes=read.size("nominal") if "nominal" in table else memory_bytes,
        memory_source=read.choice("memory_source", _SOURCES, "given"),
        assumed=tuple(assumed),
        **values,
    )


def _nearest(donors: tuple[Gpu, ...], capability: tuple[int, int], memory_bytes: int) -> Gpu | None:
    """The card of the same compute capability whose memory is nearest, the first of them at a tie."""
    same = [gpu for gpu in donors if gpu.compute_capability == capability]
    return min(same, key=lambda gpu: abs(gpu.memory_bytes - memory_bytes), default=None)
