"""CUDA's own stream-ordered pool (`TF_GPU_ALLOCATOR=cuda_malloc_async`), as far as its size goes: whatever is free can be used, wherever it lies.

It maps pages of memory to addresses as it needs them, so that it does not tear, and a piece is as large as what was asked for.
Measured on an H200 (docs/accuracy-plan.md): `bench/device/cuda_pool.py`.
"""

from legroom.engines.bfc import OutOfMemory, Shortage

ALIGNMENT_BYTES = 512


class CudaPool:
    """Counts as `legroom.engines.bfc.Bfc` does."""

    __slots__ = ("_live", "_next", "in_use_bytes", "limit_bytes", "peak_in_use_bytes", "peak_reserved_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.in_use_bytes = 0
        self.peak_in_use_bytes = 0
        self.peak_reserved_bytes = 0
        self._live: dict[int, int] = {}
        self._next = 0

    def allocate(self, size_bytes: int) -> int:
        """An address that is used once. Raises `OutOfMemory` where less is free."""
        if size_bytes <= 0:
            raise ValueError(f"An allocation has at least one byte, this one has {size_bytes}.")
        rounded = -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        free = self.limit_bytes - self.in_use_bytes
        if rounded > free:
            raise OutOfMemory(
                Shortage(size_bytes, rounded, self.in_use_bytes, self.in_use_bytes, self.limit_bytes, free)
            )
        address = self._next
        self._next += rounded
        self._live[address] = rounded
        self.in_use_bytes += rounded
        self.peak_in_use_bytes = max(self.peak_in_use_bytes, self.in_use_bytes)
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.in_use_bytes)
        return address

    def free(self, address: int) -> None:
        self.in_use_bytes -= self._live.pop(address)

    def reset_peak(self) -> None:
        """Counts the peak of use from here on."""
        self.peak_in_use_bytes = self.in_use_bytes
