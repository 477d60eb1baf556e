"""The host's own memory: NumPy's MemoryError, `std::bad_alloc`, a system call that is refused, a notebook that dies."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.sizes import SIZE, dtype_of, shape_of, size_of

STRONG = (
    *(
        b"MemoryError",
        b"bad_alloc",
        b"Cannot allocate memory",
        b"available RAM",
        b"paging file",
        b"C error: out of memory",
        b"Unable to allocate",
        b"bad allocation",
    ),
    *(b"Failed to allocate memory", b"Insufficient memory", b"malloc of size", b"Could not allocate memory"),
    *(b"not enough memory", b"ArrayMemory", b"pinned host memory", b"rror 1455", b"rror code 1455", b"[Errno 12]"),
    *(b"an't allocate memory", b"restarting kernel", b"kernel appears to have died"),
    *(b"shuffle buffer (this", b"huffle buffer filled"),
)
WEAK = (
    *(
        b"shuffle buffer",
        b"from_tensor_slices",
        b"read_csv",
        b"imread",
        b"load_data",
        b"to_categorical",
        b"pad_sequences",
    ),
    *(b"load_img", b"img_to_array", b"np.load(", b"train_test_split", b"concatenate(", b"np.array(", b"vstack("),
    *(b"generator_fn", b"data_adapter", b"from_generator", b"convert_to_eager_tensor", b"Dataset"),
)
NUMPY = re.compile(rf"Unable to allocate (?:array with shape \(([\d, ]{{1,200}})\)|{SIZE})")
ARRAY = re.compile(r"(?:an )?array with shape \(([\d, ]{1,200})\)(?: and data type ([\w<>|]{1,40}))?")
OPENCV = re.compile(r"(?:Insufficient memory|Failed to allocate) \(?(?:Failed to allocate )?(\d{1,20}) bytes")
SHUFFLE = re.compile(r"Filling up shuffle buffer[^:]{0,60}: (\d{1,12}) of (\d{1,12})")
DATA = re.compile(
    r"shuffle buffer|tokenizing data|from_tensor_slices|read_csv|imread|load_data|to_categorical|pad_sequences|load_img|img_to_array|np\.load\("
    r"|train_test_split|generator_fn|data_adapter|from_generator|concatenate\(|np\.array\(|vstack\(|Dataset"
)


REFUSED = (  # the last three by number, as Windows and C speak many languages
    *("paging file is too small", "C error: out of memory", "Cannot allocate memory", "all available RAM"),
    *("Could not allocate memory", "an't allocate memory", "rror 1455", "rror code 1455", "[Errno 12]"),
)


OF_DEVICE = re.compile(r"thrust::|CUDA|cuda[A-Z]|CNMEM|device memory|MEM_OBJECT|_cl\.|CL_|\bhip[A-Z]")


def read(text: str) -> Iterator[tuple[str, Any]]:
    if OF_DEVICE.search(text):
        return
    if numpy := NUMPY.search(text):
        yield "oom", "numpy"
        yield from array(text, numpy)
    elif opencv := OPENCV.search(text):
        yield "oom", "host"
        yield "failed_bytes", int(opencv[1])
        yield "dataset", "OpenCV"
    elif "bad_alloc" in text or "bad allocation" in text:
        yield "oom", "bad_alloc"
    elif "MemoryError" in text and "OutOfMemoryError" not in text:
        yield "oom", "numpy"
    elif any(word in text for word in REFUSED):
        yield "oom", "host"
    elif "restarting kernel" in text or "kernel appears to have died" in text:
        yield "kernel_died", None
    if "MemoryError" in text or "bad_alloc" in text:
        yield "raised", None
    if shuffle := SHUFFLE.search(text):
        yield "shuffle", (int(shuffle[1]), int(shuffle[2]))
    if shuffle or "huffle buffer filled" in text:
        yield "shuffled", None
    if data := DATA.search(text):
        yield "data_sign", data[0]


def array(text: str, numpy: re.Match[str]) -> Iterator[tuple[str, Any]]:
    """NumPy's array: its size, its shape and its type."""
    if numpy[2]:
        yield "failed_bytes", size_of(numpy[2], numpy[3])
    if shape := ARRAY.search(text, numpy.start()):
        sizes = shape_of(shape[1])
        if sizes is not None:
            yield "shape", sizes
        if shape[2]:
            yield "dtype", dtype_of(shape[2])
