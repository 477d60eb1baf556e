"""Loops whose turns run ahead of their sums, and sums of many terms: how much may be waiting there at most.

TensorFlow lets so many turns of a loop run side by side as its `parallel_iterations` says (Keras' recurrent layers: 32). What a turn
makes for something that is carried from turn to turn (a weight's gradient, to be added to the sum of the turns so far) waits where the
sum is behind. It falls behind whenever the system takes the core from a thread in the middle of one product, for a few milliseconds:
the others run on, newest first (`executor.py`), until that many turns are open, and all their products wait for the one that is missing.
Where kernels take microseconds it is common: 80 steps of a bidirectional LSTM in four micro-batches peaked at 53 to 74 MB on two
cores. In eight profiled steps of another (`both_ways`) 34 to 63 products waited; in the simulation's runs, whose kernels are never
interrupted, up to 8. In which step it happens is chance, how much it can be is not: a turn does not start before the one
`parallel_iterations` before it has ended.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from legroom.engines.ledger import Held
from legroom.engines.op.graph import LOOP_END, LOOP_GATE, Graph
from legroom.engines.op.planned import Plan


@dataclass(frozen=True, slots=True)
class Crowd:
    """A loop's nodes, of all turns, whose results can wait for what is carried, or for those that do, with the bytes of each; and the
    bytes of as many turns as may be open at once."""

    makers: Mapping[int, int]
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop as it was laid out: its turns, each from the gate that opens it to the one that closes it, and its last node."""

    turns: tuple[tuple[int, int], ...]
    last: int

    @property
    def nodes(self) -> range:
        return range(self.turns[0][0], self.last)


def crowds(graph: Graph, plans: Sequence[Plan]) -> list[Crowd]:
    """The loops in which something can pile up, and the sums that are made one term after the other."""
    return [*loop_crowds(graph, plans), *sum_crowds(graph, plans)]


def sum_crowds(graph: Graph, plans: Sequence[Plan]) -> list[Crowd]:
    """Where memory is short the optimiser has terms added to a variable as they come, not before a certain one of them is there: until
    then, and wherever threads do not get to adding them, all wait."""
    maker = {tensor: number for number, node in enumerate(graph.nodes) for tensor in node.outputs}
    terms: dict[int, set[int]] = {}
    for node in graph.nodes:
        if node.op.kind == "AssignAdd" and len(node.inputs) > 1 and node.inputs[1] in maker:
            terms.setdefault(node.inputs[0], set()).add(maker[node.inputs[1]])
    sized = [{number: sum(plans[number].sizes) for number in makers} for makers in terms.values()]
    return [Crowd(makers, sum(makers.values())) for makers in sized if any(makers.values())]


def loop_crowds(graph: Graph, plans: Sequence[Plan]) -> list[Crowd]:
    """The loops in which something can pile up."""
    read_until = {tensor: number for number, node in enumerate(graph.nodes) for tensor in node.inputs}
    maker = {tensor: number for number, node in enumerate(graph.nodes) for tensor in node.outputs}
    found = []
    for loop in loops_of(graph):
        at_once = open_at_once(graph, loop)
        if at_once < 2:
            continue
        waiting = waiting_in(graph, plans, loop, read_until)
        inside, outside, each_bytes = read_by(graph, plans, loop, waiting, maker)
        sizes = {graph.nodes[number].op.name: size for number, size in waiting.items()}
        here = sizes | inside
        makers = {n: here[name] for n in loop.nodes if (name := graph.nodes[n].op.name) in here} | outside
        if makers:
            found.append(Crowd(makers, at_once * (sum(here.values()) + each_bytes)))
    return found


def read_by(
    graph: Graph, plans: Sequence[Plan], loop: Loop, waiting: Iterable[int], maker: Mapping[int, int]
) -> tuple[dict[str, int], dict[int, int], int]:
    """What these nodes read that is another in each turn: it waits in their place for as long as no thread gets to them, which is as
    newest-first will have it. Made in the turn (names and bytes), before the loop (nodes and bytes), and how much of that for a turn."""

    def source(tensor: int) -> tuple[int, int] | None:
        """The node that the tensor's buffer was made by, and as which output."""
        number = maker.get(tensor)
        if number is None:
            return None
        k = graph.nodes[number].outputs.index(tensor)
        share = plans[number].shares[k]
        return (number, k) if share is None else source(graph.nodes[number].inputs[share])

    names = {graph.nodes[number].op.name for number in waiting}
    reads: dict[tuple[str, int], list[tuple[int, int] | None]] = {}  # (who, as which input) → what, turn by turn
    for number in loop.nodes:
        node = graph.nodes[number]
        if node.op.name in names:
            for k, tensor in enumerate(node.inputs):
                reads.setdefault((node.op.name, k), []).append(source(tensor))
    inside: dict[str, int] = {}
    outside: dict[int, int] = {}
    each_bytes = 0
    for read in reads.values():
        made = [one for one in read if one is not None]
        if len(set(made)) < 2:
            continue
        for number, k in made:
            name, size = graph.nodes[number].op.name, plans[number].sizes[k]
            if number in loop.nodes and name not in names and size:
                inside[name] = size
            elif number < loop.nodes.start and size:
                outside[number] = size
        each_bytes += max((plans[n].sizes[k] for n, k in made if n < loop.nodes.start), default=0)
    return inside, outside, each_bytes


def loops_of(graph: Graph) -> Iterator[Loop]:
    """Turns lie one after the other, each between two gates of the loop's name; a loop inside the loop lies inside a turn."""
    opened: list[int] = []
    turns: list[dict[str, list[tuple[int, int]]]] = [{}]  # of the loops at each depth
    for number, node in enumerate(graph.nodes):
        name = node.op.name
        if node.op.kind == LOOP_GATE:
            if opened and graph.nodes[opened[-1]].op.name == name:
                turns.pop()
                turns[-1].setdefault(name, []).append((opened.pop(), number))
            else:
                opened.append(number)
                turns.append({})
        elif node.op.kind == LOOP_END and name in turns[-1]:
            yield Loop(tuple(turns[-1].pop(name)), number)


def open_at_once(graph: Graph, loop: Loop) -> int:
    """How many turns may be open: the last one's gate waits for the end of the one so many before it."""
    ends = {end: i for i, (_, end) in enumerate(loop.turns)}
    awaited = [ends[number] for number in graph.nodes[loop.turns[-1][0]].after if number in ends]
    return len(loop.turns) - 1 - max(awaited) if awaited else len(loop.turns)


def waiting_in(graph: Graph, plans: Sequence[Plan], loop: Loop, read_until: Mapping[int, int]) -> dict[int, int]:
    """What the last turn makes that can wait for something carried while its maker gets any number of turns ahead of that: nodes →
    bytes. What is read after the loop is held anyway. Kernels that are cheap run where their inputs were made, one after the other."""
    before, turn = loop.turns[-2:]
    needs = carried_into(graph, before, turn)
    buffers: dict[int, tuple[int, int]] = {}  # of the turn's tensors: which node made it, and as which output
    kept: set[tuple[int, int]] = set()
    for number in range(*turn):
        node = graph.nodes[number]
        need = union(needs, node.inputs)
        for k, tensor in enumerate(node.outputs):
            needs[tensor] = need
            share = plans[number].shares[k]
            made = (number, k) if share is None else buffers.get(node.inputs[share])
            if made is not None:
                buffers[tensor] = made
                if read_until.get(tensor, 0) >= loop.last:
                    kept.add(made)
    ever = ever_needed(graph, needs, before, turn)
    found: set[tuple[int, int]] = set()
    for number in range(*turn):
        node = graph.nodes[number]
        need = union(needs, node.inputs)
        for tensor in node.inputs:
            made = buffers.get(tensor)
            if made is not None and need & ~ever(needs[tensor]) and not (plans[number].cheap and plans[made[0]].cheap):
                found.add(made)
    sizes: Counter[int] = Counter()
    for number, k in found - kept:
        sizes[number] += plans[number].sizes[k]
    return {number: size for number, size in sizes.items() if size}


def union(needs: Mapping[int, int], tensors: Iterable[int]) -> int:
    need = 0
    for tensor in tensors:
        need |= needs.get(tensor, 0)
    return need


def carried_into(graph: Graph, before: tuple[int, int], turn: tuple[int, int]) -> dict[int, int]:
    """What a turn reads of what the one before made, a bit each. Whole numbers do not count: the turn's own is one, and everything in
    a turn waits for it."""
    read = {tensor for number in range(*turn) for tensor in graph.nodes[number].inputs}
    left = [tensor for number in range(*before) for tensor in graph.nodes[number].outputs if tensor in read]
    arrays = graph.tensors
    counted = [t for t in left if arrays[t].shape or not arrays[t].dtype.startswith(("int", "uint"))]
    return {tensor: 1 << i for i, tensor in enumerate(counted)}


def ever_needed(
    graph: Graph, needs: Mapping[int, int], before: tuple[int, int], turn: tuple[int, int]
) -> Callable[[int], int]:
    """From what a node needs of the turn before to what it needs of any turn: what is carried was itself made from what was carried."""
    made = {(graph.nodes[n].op.name, k): t for n in range(*turn) for k, t in enumerate(graph.nodes[n].outputs)}
    came_from: dict[int, int] = {}
    for number in range(*before):
        node = graph.nodes[number]
        for k, tensor in enumerate(node.outputs):
            if tensor in needs:
                came_from[needs[tensor]] = needs.get(made.get((node.op.name, k), -1), 0)

    @cache
    def ever(need: int) -> int:
        wider = need
        for bit, more in came_from.items():
            if need & bit:
                wider |= more
        return need if wider == need else ever(wider)

    return ever


def crowded_bytes(
    found: Sequence[Crowd], schedule: Sequence[int], told: Iterable[tuple[Held, int, int]], peak_bytes: int
) -> int:
    """The peak of a run had each loop kept what it has made so far for its sums, up to as many turns as may be open, as long as it
    makes more. Beside them the allocator is taken to leave unused what it did at the run's own peak."""
    owners: dict[int, list[int]] = {}
    for i, crowd in enumerate(found):
        for number in crowd.makers:
            owners.setdefault(number, []).append(i)
    changes: list[list[tuple[int, int]]] = [[] for _ in range(len(schedule) + 1)]  # (whose, bytes); of all: -1
    for held, birth, death in told:
        whose = owners.get(held.number, ()) if held.owner == "output" else ()
        for i in (-1, *whose):
            changes[birth].append((i, held.size_bytes))
            changes[death + 1].append((i, -held.size_bytes))
    ran: dict[int, list[int]] = {}
    made_at: dict[int, list[tuple[int, int]]] = {}  # whether or not it took over the buffer of what it read
    for place, number in enumerate(schedule):
        for i in owners.get(number, ()):
            ran.setdefault(i, []).append(place)
            made_at.setdefault(place, []).append((i, found[i].makers[number]))
    opening: dict[int, list[int]] = {}
    closing: dict[int, list[int]] = {}
    for i, places in ran.items():
        opening.setdefault(places[0], []).append(i)
        closing.setdefault(places[-1], []).append(i)
    live, highest, crowded = 0, 0, 0
    waiting, made = [0] * len(found), [0] * len(found)
    running: set[int] = set()
    for place, here in enumerate(changes):
        running.update(opening.get(place, ()))
        for i, size in here:
            if i < 0:
                live += size
            else:
                waiting[i] += size
        for i, size in made_at.get(place, ()):
            made[i] += size
        highest = max(highest, live)
        more = sum(max(0, min(made[i], found[i].most_bytes) - waiting[i]) for i in running)
        crowded = max(crowded, live + more)
        running.difference_update(closing.get(place, ()))
    return crowded + peak_bytes - highest
