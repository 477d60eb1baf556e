"""The third-level cache that Eigen finds on this machine, and with it TensorFlow's kernels of 3-D convolutions.

On Intel's processors that is the size the system tells. On AMD's Eigen takes what CPUID says of the whole package, many times
what one core sees: 320 MiB where the system says 32. Only the processor's own instruction tells that, so it is run here, from
a page of memory; where that is not allowed, or not an x86-64, the system's size stands in. Tested with TensorFlow 2.21.0.
"""

import ctypes
import mmap
import platform
from functools import cache
from pathlib import Path

TYPICAL_BYTES = 32 << 20
CPUID = bytes.fromhex(  # void cpuid(leaf in edi, subleaf in esi, four numbers at rdx)
    "53"  # push rbx
    "89f8 89f1 4989d0"  # eax = leaf, ecx = subleaf, r8 = where to
    "0fa2"  # cpuid
    "418900 41895804 41894808 4189500c"  # eax, ebx, ecx, edx
    "5b c3"  # pop rbx, ret
)
EXTENDED, CACHES = 0x80000000, 0x80000006


@cache
def machine_l3_cache_bytes() -> int:
    """As Eigen sees it, or a usual size where nobody says."""
    return (package_bytes() if is_amd() else None) or told_by_system() or TYPICAL_BYTES


def is_amd() -> bool:
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def told_by_system() -> int | None:
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
    except OSError:
        return None
    return int(text.removesuffix("K")) << 10 if text.endswith("K") else None


def package_bytes() -> int | None:
    """Bits 18 to 27 of the last number count half mebibytes; so many bits does Eigen look at."""
    try:
        with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
            page.write(CPUID)
            start = ctypes.c_char.from_buffer(page)
            numbers = (ctypes.c_uint32 * 4)()
            kind = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32 * 4))
            call = kind(ctypes.addressof(start))
            call(EXTENDED, 0, ctypes.byref(numbers))
            if numbers[0] >= CACHES:
                call(CACHES, 0, ctypes.byref(numbers))
            else:
                numbers[3] = 0
            del start, call
    except (OSError, ValueError, BufferError):
        return None
    return (numbers[3] & 0xFFFC000) >> 18 << 19 or None
