"""The C library's allocator, asked to return what it keeps.

glibc keeps freed blocks of up to 32 MiB in the arena of the thread that had them (the threshold from which it maps blocks grows with
what is freed). Where large blocks were freed that will not soon be wanted again, they are given back to the system.
"""

import ctypes
import sys


def give_back() -> None:
    """Return freed memory to the system (glibc's malloc_trim); nothing where there is no such function."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
