"""Which blocks to recompute where the layers are no chain: a mixed-integer program, solved by HiGHS.

A chain's dynamic programming (`remat.py`) counts all that lies between two segments for each block that starts there, so a skip
connection across five blocks counts five times. Here every tensor has a variable of its own: it is kept once, while a plain
segment's gradient needs it, or where a block reads it that starts after it was made. What a block may hold inside is a
constant of each program, as there; a few of them are tried around the chain's answer, which is where the search starts and what it falls back to.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from legroom.plans.remat import (
    CAPS,
    EXACT,
    Choice,
    Cost,
    Output,
    blocks_ending,
    choose_blocks,
    inside_of_blocks,
    insides,
    smallest,
    thinned,
)

SECONDS = 5.0  # for all programs of one search
AROUND = (1.0, 0.8, 1.25, 0.6, 1.6, 0.4, 2.5)  # caps that are tried, as shares of the chain's
MOST_COVERED = 400_000  # positions under all arcs of one program: HiGHS would have no time for more
GAP = 0.005  # of the extra work: a better answer is not looked for

Row = tuple[float, float, dict[int, float]]


@dataclass(frozen=True)
class Arc:
    """A plain segment, or a block that is recomputed: from its first position to behind its last."""

    start: int
    stop: int
    plain: bool


def choose(chain: Sequence[Cost], budget_bytes: int, seconds: float = SECONDS) -> Choice | None:
    """The blocks with the least extra work found whose peak is within the budget; None if none suffice."""
    if is_chain(chain):
        return choose_blocks(chain, budget_bytes)
    found = choose_blocks(chain, budget_bytes, most_caps(chain))
    if found is not None and not found.blocks:
        return found
    best = cheaper(None, counted(chain, found.blocks) if found is not None else None, budget_bytes)
    at = inside_of_blocks(chain, found.blocks) if found is not None else None
    deadline = time.monotonic() + seconds
    for cap in in_turn(chain, [cap for cap in insides(chain) if cap <= budget_bytes], at):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        program = Program(chain, cap)
        best = cheaper(best, program.least_work(budget_bytes - cap, min(left, seconds / 2), best), budget_bytes)
    return best


def least(chain: Sequence[Cost], seconds: float = SECONDS) -> Choice:
    """The lowest peak found, whatever it costs."""
    if is_chain(chain):
        return smallest(chain)
    best = min(
        counted(chain, ()), counted(chain, smallest(chain, most_caps(chain)).blocks), key=lambda one: one.peak_bytes
    )
    deadline = time.monotonic() + seconds
    for cap in in_turn(chain, insides(chain), inside_of_blocks(chain, best.blocks)):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        found = Program(chain, cap).least_kept(min(left, seconds / 2), best)
        if found is not None and (found.peak_bytes, found.extra_flops) < (best.peak_bytes, best.extra_flops):
            best = found
    return best


def is_chain(chain: Sequence[Cost]) -> bool:
    """Whether each segment reads only what the one before it makes, so that the chain's own counting is exact."""
    return all(set(made.read_by) <= {place + 1} for place, cost in enumerate(chain) for made in cost.outputs)


def in_turn(chain: Sequence[Cost], caps: Sequence[int], at: int | None) -> list[int]:
    """The cap at which the search starts, then others around it; all of them where there are few segments."""
    if not caps:
        return []
    if len(chain) <= EXACT:
        return list(caps)
    if at is None:
        return thinned(caps, len(AROUND))
    return list(dict.fromkeys(min(caps, key=lambda cap: abs(cap - at * share)) for share in AROUND))


def most_caps(chain: Sequence[Cost]) -> int:
    """How many caps the chain's own search tries: fewer where it has to be brief, as it takes the square of the length."""
    return CAPS if len(chain) <= 250 else CAPS // 2


def cheaper(best: Choice | None, found: Choice | None, budget_bytes: int) -> Choice | None:
    if found is None or found.peak_bytes > budget_bytes:  # the program counts in floating point
        return best
    if best is None:
        return found
    return min(best, found, key=lambda choice: (choice.extra_flops, choice.peak_bytes))


def counted(chain: Sequence[Cost], blocks: tuple[tuple[int, ...], ...]) -> Choice:
    """What these blocks cost and lead to, each tensor counted once."""
    starts = {place: block[0] for block in blocks for place in block}
    kept = sum(inner_bytes(cost) for place, cost in enumerate(chain) if place not in starts)
    for made, cost in enumerate(chain):
        for output in cost.outputs:
            kept += output.size_bytes if is_kept(output, made, starts) else 0
    largest = inside_of_blocks(chain, blocks)
    return Choice(blocks, sum(chain[place].flops for place in starts), kept, kept + largest)


def is_kept(output: Output, made: int, starts: dict[int, int]) -> bool:
    """`starts` has where the block of each recomputed segment begins."""
    plain = any(place not in starts for place in output.held_by)
    return plain or any(starts.get(place, -1) > made for place in output.read_by)


def inner_bytes(cost: Cost) -> int:
    """What a plain segment keeps that is none of its outputs."""
    return cost.kept_bytes - sum(output.size_bytes for output in cost.outputs if output.held_by)


class Program:
    """A way through the positions, from segment to segment or over a block that holds no more than the cap: which arcs are on it, and which
    tensors are kept. As of a chain it would be a shortest path, HiGHS has little to branch on but the budget."""

    def __init__(self, chain: Sequence[Cost], cap: int) -> None:
        self.chain = chain
        self.arcs = [Arc(place, place + 1, plain=True) for place in range(len(chain))]
        self.arcs += [
            Arc(start, stop, plain=False)
            for stop in range(1, len(chain) + 1)
            for start, _ in blocks_ending(chain, stop, cap)
        ]
        self.tensors = [
            (made, output) for made, cost in enumerate(chain) for output in cost.outputs if output.size_bytes
        ]
        self.unit = max(1, sum(cost.kept_bytes for cost in chain)) / 1000.0  # solvers like numbers of one size

    def is_too_long(self) -> bool:
        return sum(arc.stop - arc.start for arc in self.arcs) > MOST_COVERED

    def steps(self) -> Iterator[Row]:
        """As many arcs leave a position as reach it: one, from the first on."""
        rows: list[dict[int, float]] = [{} for _ in range(len(self.chain) + 1)]
        for column, arc in enumerate(self.arcs):
            rows[arc.start][column] = 1.0
            rows[arc.stop][column] = -1.0
        yield 1, 1, rows[0]
        for row in rows[1:-1]:
            yield 0, 0, row

    def kept(self) -> Iterator[Row]:
        """A tensor is kept if the arc over one of its readers needs it: plain for its gradient, or a block that starts after it was made."""
        over: list[list[int]] = [[] for _ in self.chain]
        for column, arc in enumerate(self.arcs):
            for place in range(arc.start, arc.stop):
                over[place].append(column)
        for tensor, (made, output) in enumerate(self.tensors, len(self.arcs)):
            for reader in {*output.held_by, *output.read_by}:
                row = {
                    column: -1.0
                    for column in over[reader]
                    if (
                        reader in output.held_by
                        if self.arcs[column].plain
                        else made < self.arcs[column].start <= reader
                    )
                }
                if row:
                    yield 0, 1, {tensor: 1.0} | row

    def bytes_of(self) -> dict[int, float]:
        sizes = {column: inner_bytes(self.chain[arc.start]) for column, arc in enumerate(self.arcs) if arc.plain}
        sizes |= {tensor: output.size_bytes for tensor, (_, output) in enumerate(self.tensors, len(self.arcs))}
        return {column: size / self.unit for column, size in sizes.items()}

    def least_work(self, kept_bytes: int, seconds: float, best: Choice | None) -> Choice | None:
        whole = max(1, sum(cost.flops for cost in self.chain)) / 1000.0
        done = list(itertools.accumulate((cost.flops for cost in self.chain), initial=0))
        work = {
            column: (done[arc.stop] - done[arc.start]) / whole for column, arc in enumerate(self.arcs) if not arc.plain
        }
        return self.solve(work, [(0.0, kept_bytes / self.unit, self.bytes_of())], seconds, best)

    def least_kept(self, seconds: float, best: Choice | None = None) -> Choice | None:
        return self.solve(self.bytes_of(), [], seconds, best)

    def solve(
        self, costs: dict[int, float], limits: Sequence[Row], seconds: float, start: Choice | None
    ) -> Choice | None:
        """The blocks of the best answer that HiGHS finds in that time, from one that is known; None where there is none, or it finds none."""
        if self.is_too_long():
            return None
        import highspy
        import numpy as np

        rows = [*self.steps(), *self.kept(), *limits]
        columns, arcs = len(self.arcs) + len(self.tensors), np.arange(len(self.arcs), dtype=np.int32)
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("time_limit", seconds)
        solver.setOptionValue("mip_rel_gap", GAP)
        solver.addVars(columns, np.zeros(columns), np.ones(columns))
        solver.changeColsIntegrality(len(arcs), arcs, np.full(len(arcs), highspy.HighsVarType.kInteger))
        solver.changeColsCost(len(costs), np.fromiter(costs, np.int32), np.fromiter(costs.values(), float))
        sizes = [len(row) for _, _, row in rows]
        solver.addRows(
            len(rows),
            np.array([low for low, _, _ in rows], float),
            np.array([high for _, high, _ in rows], float),
            sum(sizes),
            np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32),
            np.fromiter((column for _, _, row in rows for column in row), np.int32),
            np.fromiter((value for _, _, row in rows for value in row.values()), float),
        )
        if start is not None:
            known = self.values_of(start)
            solver.setSolution(len(known), np.arange(len(known), dtype=np.int32), np.array(known, float))
        solver.run()
        if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        return counted(self.chain, self.blocks_of(solver.getSolution().col_value))

    def values_of(self, choice: Choice) -> list[float]:
        starts = {place: block[0] for block in choice.blocks for place in block}
        spans = {(block[0], block[-1] + 1) for block in choice.blocks}
        arcs = [arc.start not in starts if arc.plain else (arc.start, arc.stop) in spans for arc in self.arcs]
        return [float(on) for on in (*arcs, *(is_kept(output, made, starts) for made, output in self.tensors))]

    def blocks_of(self, values: Sequence[float]) -> tuple[tuple[int, ...], ...]:
        taken = [arc for arc, value in zip(self.arcs, values, strict=False) if value > 0.5 and not arc.plain]
        return tuple(tuple(range(arc.start, arc.stop)) for arc in sorted(taken, key=lambda arc: arc.start))
