"""How fast the simulated allocator is: a million allocations and their frees, shaped like training steps.

    python bench/bfc.py [allocations]

A step of 1000 layers keeps three thousand tensors alive until its backward pass.
"""

import random
import sys
import time
from collections.abc import Iterator

from legroom.engines.bfc import Bfc
from legroom.engines.op.replay import Event, replay

LAYERS = 1000
LIMIT_BYTES = 80 * 2**30
CARDS = {"one pool": False, "growing": True}


def step(rng: random.Random, first_key: int) -> Iterator[Event]:
    """Forward: three kept tensors a layer and two that die with it. Backward: four short-lived ones, and the kept ones die."""
    key = first_key
    kept: list[list[int]] = []
    for _ in range(LAYERS):
        width = rng.choice((64, 128, 256, 512, 1024))
        sizes = [4 * width * rng.randrange(1, 4000) for _ in range(2)] + [4 * width]
        layer: list[int] = []
        short: list[int] = []
        for size in [*sizes, 4 * width * rng.randrange(1, 1000), 4 * rng.randrange(1, 100)]:
            (layer if len(layer) < 3 else short).append(key)
            yield key, size, "forward"
            key += 1
        for dead in short:
            yield dead, None, "forward"
        kept.append(layer)
    for layer in reversed(kept):
        short = []
        for _ in range(4):
            yield key, 4 * rng.randrange(1, 1_000_000), "backward"
            short.append(key)
            key += 1
        rng.shuffle(short)
        for dead in [*layer, *short]:
            yield dead, None, "backward"


def steps(allocations: int) -> list[Event]:
    """Steps until there are that many allocations; the last one is whole."""
    rng = random.Random(0)
    events: list[Event] = []
    done = 0
    while done < allocations:
        events += step(rng, done)
        done += LAYERS * 9
    return events


def main() -> None:
    """Prints a line for each way a card's memory is taken."""
    allocations = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    events = steps(allocations)
    for name, growth in CARDS.items():
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            result = replay(events, Bfc(LIMIT_BYTES, growth=growth, garbage_collection=True))
            best = min(best, time.process_time() - began)
        assert result.failure is None
        print(
            f"{name:9} {len(events):,} events in {best:.2f} s of CPU: {len(events) / best:,.0f} a second,"
            f" peak {result.peak_in_use_bytes / 2**20:,.0f} MiB"
        )


if __name__ == "__main__":
    main()
