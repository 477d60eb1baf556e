"""The order of an epoch's samples: a permutation of all of them that can be asked anywhere, the same for the same seed.

Small data is sorted by 46 random bits and more for each sample, in place, in memory that is taken once. Large data goes through a
Feistel network with cycle walking (Black and Rogaway, "Ciphers with arbitrary finite domains"), so that no list of a billion
numbers is held.
Both are plain integer arithmetic: the same on any machine, in any NumPy, on any number of threads.
"""

import threading
from functools import lru_cache
from typing import Any

import numpy as np

SORTED_UP_TO = 1 << 18  # 2 MiB of indices for each epoch that is under way
HELD_EPOCHS = 2
ROUNDS = 8
BLOCK = 8192
MIXED = 1024  # at a time, whichever thread does it: what it takes for that stays in that thread's arena

Indices = np.ndarray[Any, np.dtype[np.int64]]


class Order:
    """Which sample stands at which place of an epoch."""

    def __init__(self, length: int, seed: int, shuffle: bool) -> None:
        self.length, self.seed, self.shuffle = length, seed, shuffle
        self.lock = threading.Lock()
        self.sorted: dict[int, Any] = {}  # the last two epochs that were asked for, the newest at the end
        self.block = lru_cache(maxsize=8)(self.walked_block)

    @property
    def held_bytes(self) -> int:
        """What it holds at most: two epochs of a small one, a few blocks of a large one."""
        if not self.shuffle:
            return 0
        return 16 * self.length if self.length <= SORTED_UP_TO else 8 * 8 * BLOCK

    def indices(self, epoch: int, start: int, stop: int) -> Indices:
        """The samples at the places from `start` up to `stop` of an epoch."""
        stop = min(stop, self.length)
        if not self.shuffle:
            return np.arange(start, stop, dtype=np.int64)
        with self.lock:
            if self.length <= SORTED_UP_TO:
                return self.sorted_epoch(epoch)[start:stop].copy()  # its memory will be another epoch's
            first, last = start // BLOCK, max(start, stop - 1) // BLOCK
            blocks = np.concatenate([self.block(epoch, number) for number in range(first, last + 1)])
        return blocks[start - first * BLOCK : stop - first * BLOCK]

    def sorted_epoch(self, epoch: int) -> Indices:
        """Random keys with the samples' numbers in their lowest bits, sorted; the keys are then cut off."""
        if epoch not in self.sorted:
            oldest = next(iter(self.sorted), epoch)
            order = self.sorted.pop(oldest) if len(self.sorted) == HELD_EPOCHS else np.empty(self.length, np.uint64)
            low, key = np.uint64((1 << (self.length - 1).bit_length()) - 1), key_of(self.seed, epoch, 0)
            for start in range(0, self.length, MIXED):
                numbers = np.arange(start, min(start + MIXED, self.length), dtype=np.uint64)
                order[start : start + MIXED] = (mixed(numbers, key) & ~low) | numbers
            order.sort()
            order &= low
            self.sorted[epoch] = order
        found: Indices = self.sorted[epoch].view(np.int64)
        return found

    def walked_block(self, epoch: int, number: int) -> Indices:
        places = np.arange(number * BLOCK, min((number + 1) * BLOCK, self.length), dtype=np.uint64)
        half = (int(self.length - 1).bit_length() + 1) // 2
        keys = [key_of(self.seed, epoch, turn + 1) for turn in range(ROUNDS)]
        values = feistel(places, half, keys)
        outside = np.flatnonzero(values >= self.length)
        while outside.size:  # a place outside is walked on until it comes back in: still one to one
            values[outside] = feistel(values[outside], half, keys)
            outside = outside[values[outside] >= self.length]
        walked: Indices = values.astype(np.int64)
        return walked


def feistel(values: Any, half: int, keys: list[int]) -> Any:
    mask = np.uint64((1 << half) - 1)
    left, right = values >> np.uint64(half), values & mask
    for key in keys:
        left, right = right, left ^ (mixed(right, key) & mask)
    return (left << np.uint64(half)) | right


def mixed(values: Any, key: int) -> Any:
    """64 well mixed bits for each number: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    bits = values * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def key_of(seed: int, epoch: int, turn: int) -> int:
    """A key that depends on every bit of all three."""
    key = np.zeros(1, dtype=np.uint64)
    for number in (seed & (2**64 - 1), epoch, turn):
        key = mixed(key ^ np.uint64(number), 0xD1B54A32D192ED03)
    return int(key[0])
