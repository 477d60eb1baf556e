"""The order of the nodes in a loop's body, as they stand in the graph that runs.

The runtime turns a loop into jumps and copies its body into the graph around it, where the optimiser sorts everything together.
Legroom lays out the body that is still a function, whose nodes have another order: here is the one that counts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from legroom.engines.op.templates import Template

LOOPS = ("While", "StatelessWhile")
COPIED = re.compile(r"(?P<loop>.+?)/body/_\d+/(?P<node>.+)")  # what a body's node is called in the graph around it

Order = Mapping[str, Mapping[str, int]]  # loop's name → its body's nodes → their places


def has_loops(definition: Any) -> bool:
    return any(node.op in LOOPS for node in definition.node)


def loop_order(definition: Any) -> Order:
    """From a graph whose loops are jumps, the places of each loop's nodes."""
    found: dict[str, dict[str, int]] = {}
    for place, name in enumerate(read_order(definition)):
        match = COPIED.fullmatch(name)
        if match is not None:
            found.setdefault(match["loop"], {})[match["node"]] = place
    return found


def read_order(definition: Any) -> Iterable[str]:
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(definition, name="")
    return (operation.name for operation in graph.get_operations())


def in_order(nodes: Sequence[Template], places: Mapping[str, int]) -> tuple[Template, ...]:
    """A body's nodes by their places; one that has none comes right after the last of those that it waits for. None comes before
    what it waits for: a loop inside the loop has no place of its own where its nodes have theirs."""
    known: dict[str, int] = {}
    waits: dict[str, set[str]] = {}
    readers: dict[str, list[int]] = {}
    names = {node.name for node in nodes}
    for number, node in enumerate(nodes):
        waits[node.name] = {name.split(":")[0] for name in (*node.inputs, *node.controls)} & names
        known[node.name] = places.get(node.name, max((known.get(name, -1) for name in waits[node.name]), default=-1))
        for name in waits[node.name]:
            readers.setdefault(name, []).append(number)
    ready = [(known[node.name], number) for number, node in enumerate(nodes) if not waits[node.name]]
    heapify(ready)
    found: list[Template] = []
    while ready:
        node = nodes[heappop(ready)[1]]
        found.append(node)
        for number in readers.get(node.name, ()):
            waiting = waits[nodes[number].name]
            waiting.discard(node.name)
            if not waiting:
                heappush(ready, (known[nodes[number].name], number))
    return tuple(found)
