"""What every card of one compute capability has in common.

From NVIDIA's CUDA programming guide (compute capabilities) and from device queries in public logs. XLA calls an SM a
core, and a CUDA core an FPU.
"""

from dataclasses import dataclass

from legroom.units import KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """The architecture behind a compute capability, and what one of its SMs holds."""

    architecture: str
    cores_per_sm: int
    threads_per_sm: int
    shared_bytes_per_sm: int
    shared_bytes_per_block_optin: int
    shared_bytes_per_block: int = 48 * KIB
    threads_per_block: int = 1024
    threads_per_warp: int = 32
    registers_per_sm: int = 65536
    registers_per_block: int = 65536


LIMITS: dict[tuple[int, int], Limits] = {
    (6, 0): Limits("Pascal", 64, 2048, 64 * KIB, 48 * KIB),
    (6, 1): Limits("Pascal", 128, 2048, 96 * KIB, 48 * KIB),
    (7, 0): Limits("Volta", 64, 2048, 96 * KIB, 96 * KIB),
    (7, 5): Limits("Turing", 64, 1024, 64 * KIB, 64 * KIB),
    (8, 0): Limits("Ampere", 64, 2048, 164 * KIB, 163 * KIB),
    (8, 6): Limits("Ampere", 128, 1536, 100 * KIB, 99 * KIB),
    (8, 9): Limits("Ada", 128, 1536, 100 * KIB, 99 * KIB),
    (9, 0): Limits("Hopper", 128, 2048, 228 * KIB, 227 * KIB),
    (10, 0): Limits("Blackwell", 128, 2048, 228 * KIB, 227 * KIB),
    (12, 0): Limits("Blackwell", 128, 1536, 100 * KIB, 99 * KIB),
}
