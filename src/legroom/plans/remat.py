"""Which blocks of a chain to recompute: the least extra work under a budget of bytes (of other graphs: `remat_graph.py`).

The forward pass keeps all that plain segments keep, and what lies before each recomputed block. The backward pass brings one block
back at a time. So the peak is what is kept plus the largest block's insides. For each cap on a block's insides, dynamic
programming over positions holds the best trades of bytes against work; with few segments nothing is left out, with many the
trades are thinned to `TRADES` and the caps to `CAPS` (bytes are never rounded, so a choice always holds what it promises).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

TRADES = 48
CAPS = 14
EXACT = 12


@dataclass(frozen=True)
class Output:
    """A tensor that a segment makes: the segments whose gradients need it while they are plain, and all that read it."""

    size_bytes: int
    held_by: tuple[int, ...]
    read_by: tuple[int, ...]


@dataclass(frozen=True)
class Cost:
    """A segment: bytes if it is plain, bytes between it and what runs before, and the work of its forward pass.

    `shared_bytes` is the part of the boundary that the segment before keeps anyway if it is plain, `needed_bytes` the part that the
    segment's own gradient needs: what is plain after a block keeps it.
    `recomputable` is False for a segment that must stay plain; `begins` is True where no block may reach across its start.
    `outputs` are known where the segments are a graph (`remat_graph.py`).
    """

    kept_bytes: int
    boundary_bytes: int
    flops: int
    shared_bytes: int = 0
    needed_bytes: int = 0
    recomputable: bool = True
    begins: bool = False
    outputs: tuple[Output, ...] = ()

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Cost:
        """From JSON; what is none of its fields is left out."""
        known = {field.name: plain[field.name] for field in fields(cls) if field.name in plain}
        outputs = [Output(size, tuple(held), tuple(read)) for size, held, read in plain.get("outputs", ())]
        return cls(**known | {"outputs": tuple(outputs)})


@dataclass(frozen=True)
class Choice:
    """Blocks as runs of positions in the chain, what they cost and the bytes they lead to."""

    blocks: tuple[tuple[int, ...], ...]
    extra_flops: int
    kept_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Trade:
    """Bytes kept and work added up to a position; `block` is where the block began that ends here, None for a plain segment."""

    kept: int
    flops: int
    before: Trade | None
    position: int
    block: int | None


Row = tuple[int, int, Trade, int | None]


@dataclass(frozen=True)
class Room:
    """What a search may use: a cap on each block's insides, and what is left for all that is kept."""

    cap: int
    kept: int
    flops: int | None


def choose_blocks(chain: Sequence[Cost], budget_bytes: int, most_caps: int = CAPS) -> Choice | None:
    """The blocks with the least extra work whose peak is within the budget; no blocks if none are needed, None if none suffice."""
    plain = sum(cost.kept_bytes for cost in chain)
    if plain <= budget_bytes:
        return Choice((), 0, plain, plain)
    caps = [cap for cap in insides(chain) if cap <= budget_bytes]
    best: Choice | None = None
    tried: dict[int, Choice | None] = {}
    for cap in caps if len(chain) <= EXACT else thinned(caps, most_caps):
        tried[cap] = cheapest(chain, Room(cap, budget_bytes - cap, best.extra_flops if best else None))
        best = better(best, tried[cap])
    if len(chain) > EXACT:
        for cap in nearby(caps, tried, best, most_caps):
            best = better(best, cheapest(chain, Room(cap, budget_bytes - cap, best.extra_flops if best else None)))
    return best


def smallest(chain: Sequence[Cost], most_caps: int = CAPS) -> Choice:
    """The lowest peak that recomputing can reach, whatever it costs; of blocks that reach it, not always the cheapest."""
    plain = sum(cost.kept_bytes for cost in chain)
    best = Choice((), 0, plain, plain)
    caps = insides(chain)
    for cap in caps if len(chain) <= EXACT else thinned(caps, 6 * most_caps):
        found = leanest(chain, cap)
        if found is not None and found.peak_bytes < best.peak_bytes:
            best = found
    return choose_blocks(chain, best.peak_bytes, most_caps) or best


def better(one: Choice | None, other: Choice | None) -> Choice | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda choice: (choice.extra_flops, choice.peak_bytes))


def blocks_ending(chain: Sequence[Cost], stop: int, cap: int) -> Iterator[tuple[int, int]]:
    """Where a block that ends before `stop` may begin, with the work of recomputing it; the shortest first."""
    inside = flops = 0
    for start in range(stop - 1, -1, -1):
        cost = chain[start]
        inside += cost.kept_bytes
        flops += cost.flops
        if not cost.recomputable or inside > cap:
            return
        yield start, flops
        if cost.begins:
            return


def insides(chain: Sequence[Cost]) -> list[int]:
    """The bytes inside every block that there could be, each once, the smallest first."""
    sums = set()
    for stop in range(1, len(chain) + 1):
        inside = 0
        for start, _ in blocks_ending(chain, stop, sum(cost.kept_bytes for cost in chain)):
            inside += chain[start].kept_bytes
            sums.add(inside)
    return sorted(sums)


def thinned(caps: Sequence[int], count: int = CAPS) -> list[int]:
    """About `count` caps: evenly by rank, as the small ones lie densest where most choices are."""
    if len(caps) <= count:
        return list(caps)
    ranks = [round((len(caps) - 1) * (place / (count - 1)) ** 2) for place in range(count)]
    return sorted({caps[rank] for rank in ranks})


def nearby(caps: Sequence[int], tried: dict[int, Choice | None], best: Choice | None, most: int) -> list[int]:
    """Caps between the best one and those tried next to it."""
    known = sorted(tried)
    if best is None:
        return [cap for cap in thinned(caps, 4 * most) if cap not in tried]
    at = next(place for place, cap in enumerate(known) if tried[cap] is best)
    low, high = known[max(0, at - 1)], known[min(len(known) - 1, at + 1)]
    return [cap for cap in thinned([cap for cap in caps if low < cap < high], most // 2) if cap not in tried]


def least_after(chain: Sequence[Cost], cap: int) -> list[int]:
    """The fewest bytes that must still be kept from each position on, or fewer."""
    least = [0] * (len(chain) + 1)
    for start in range(len(chain) - 1, -1, -1):
        found = chain[start].kept_bytes + least[start + 1]
        inside = 0
        for stop in range(start, len(chain)):
            cost = chain[stop]
            inside += cost.kept_bytes
            if not cost.recomputable or inside > cap or (cost.begins and stop > start):
                break
            found = min(found, chain[start].boundary_bytes - chain[start].shared_bytes + least[stop + 1])
        least[start] = found
    return least


def cheapest(chain: Sequence[Cost], room: Room) -> Choice | None:
    least = least_after(chain, room.cap)
    if least[0] > room.kept:
        return None
    trades: list[list[Trade]] = [[Trade(0, 0, None, 0, None)]]
    for stop in range(1, len(chain) + 1):
        limit = room.kept - least[stop]
        last = chain[stop - 1]
        plain: list[Row] = [
            (kept, trade.flops, trade, None)
            for trade in trades[stop - 1]
            if (kept := trade.kept + last.kept_bytes + after_block(last, trade)) <= limit
        ]
        blocks: list[Row] = []
        for start, flops in blocks_ending(chain, stop, room.cap):
            work = [trade for trade in trades[start] if room.flops is None or trade.flops + flops < room.flops]
            rows = [(trade.kept + boundary(chain, trade), trade.flops + flops, trade, start) for trade in work]
            blocks += [row for row in rows if row[0] <= limit]
        trades.append(front(plain, stop) + front(blocks, stop))
    return choice_of(chain, min(trades[-1], key=lambda trade: (trade.flops, trade.kept))) if trades[-1] else None


def boundary(chain: Sequence[Cost], trade: Trade) -> int:
    """What a block keeps that starts after a trade."""
    cost = chain[trade.position]
    return cost.boundary_bytes - (cost.shared_bytes if trade.position and trade.block is None else 0)


def after_block(cost: Cost, trade: Trade) -> int:
    """What a plain segment keeps beside its own where a block ends before it."""
    return cost.needed_bytes if trade.block is not None else 0


def front(found: list[Row], position: int) -> list[Trade]:
    """Only trades that no other beats in both bytes and work, at most `TRADES` of them: the leanest, and the cheapest of each share."""
    found.sort(key=lambda row: (row[0], row[1]))
    kept: list[Row] = []
    for row in found:
        if not kept or row[1] < kept[-1][1]:
            kept.append(row)
    if len(kept) > TRADES:
        share = len(kept) / TRADES
        kept = [kept[0]] + [kept[int(share * (place + 1)) - 1] for place in range(TRADES)]
    return [Trade(bytes_kept, flops, before, position, block) for bytes_kept, flops, before, block in kept]


def leanest(chain: Sequence[Cost], cap: int) -> Choice | None:
    """The fewest bytes kept with blocks up to a cap."""
    best: list[list[Trade]] = [[Trade(0, 0, None, 0, None)]]
    for stop in range(1, len(chain) + 1):
        last = chain[stop - 1]
        plain = [
            (trade.kept + last.kept_bytes + after_block(last, trade), trade.flops, trade, None)
            for trade in best[stop - 1]
        ]
        blocks = [
            (trade.kept + boundary(chain, trade), trade.flops + flops, trade, start)
            for start, flops in blocks_ending(chain, stop, cap)
            for trade in best[start]
        ]
        ends = [min(rows, key=lambda row: row[:2]) for rows in (plain, blocks) if rows]
        best.append([Trade(kept, flops, trade, stop, block) for kept, flops, trade, block in ends])
    return choice_of(chain, min(best[-1], key=lambda trade: (trade.kept, trade.flops)))


def choice_of(chain: Sequence[Cost], trade: Trade) -> Choice:
    blocks = []
    step: Trade | None = trade
    while step is not None:
        if step.block is not None:
            blocks.append(tuple(range(step.block, step.position)))
        step = step.before
    return described(chain, tuple(reversed(blocks)))


def described(chain: Sequence[Cost], blocks: tuple[tuple[int, ...], ...]) -> Choice:
    """What these blocks cost and lead to."""
    inside = set(itertools.chain.from_iterable(blocks))
    kept = sum(cost.kept_bytes for place, cost in enumerate(chain) if place not in inside)
    for block in blocks:
        cost, after = chain[block[0]], block[-1] + 1
        kept += cost.boundary_bytes - (cost.shared_bytes if block[0] and block[0] - 1 not in inside else 0)
        kept += chain[after].needed_bytes if after < len(chain) and after not in inside else 0
    return Choice(blocks, sum(chain[place].flops for place in inside), kept, kept + inside_of_blocks(chain, blocks))


def inside_of_blocks(chain: Sequence[Cost], blocks: tuple[tuple[int, ...], ...]) -> int:
    """What the largest block holds while it is brought back."""
    return max((sum(chain[place].kept_bytes for place in block) for block in blocks), default=0)
