"""Sizes and types as TensorFlow, XLA, PyTorch, NumPy and the kernel write them."""

from collections.abc import Sequence
from decimal import Decimal
from math import prod

SIZE = r"(\d{1,20}(?:\.\d{0,9})?)\s?([KMGTP]i?B|[KMGTP]|B|bytes|kB)?"
FACTORS = {"": 1, "B": 1, "bytes": 1} | {
    name: 1024**power for power, unit in enumerate("KMGTP", 1) for name in (unit, f"{unit}iB", f"{unit}B")
}
FACTORS["kB"] = 1024
NAMES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bool": "bool",
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "bfloat16",
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "s64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "pred": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
WIDTHS = {
    "float64": 8, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16, "float32": 4, "int32": 4, "uint32": 4,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
LARGEST = 2**63


def size_of(number: str, unit: str | None) -> int:
    """All of these frameworks count in 1024s, whatever they write behind the number: `GB`, `Gb`, `gigabytes`."""
    name = unit or ""
    factor = FACTORS.get(name) or FACTORS.get(name[:1].upper(), 1)
    return min(LARGEST, int(Decimal(number) * factor))


def shape_of(text: str) -> tuple[int, ...] | None:
    """`128,256,56,56` or `(60000, 784)`; None where a size is not a number."""
    parts = [part.strip() for part in text.strip("()[] ").split(",") if part.strip()]
    if len(parts) > 16 or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
        return None
    return tuple(int(part) for part in parts)


def dtype_of(name: str) -> str:
    """NumPy's name of a type that C++ or XLA names otherwise."""
    return NAMES.get(name, name)


def tensor_bytes(shape: Sequence[int] | None, dtype: str | None, default: int | None = None) -> int | None:
    """What such a tensor takes; `default` bytes an element where its type is not said."""
    width = WIDTHS.get(dtype or "", default)
    if shape is None or width is None:
        return None
    return min(LARGEST, prod(shape) * width)
