"""Loops turned into jumps as the runtime does it, before a graph is optimised.

Here it is the optimiser that does it, in a round of its own (`grappler.py`): which loops it may take is said before, and what it adds that
the runtime does not is taken away after.
"""

from collections.abc import Iterable
from typing import Any

LOOPS = ("While", "StatelessWhile")
JUMPS = "_lower_using_switch_merge"  # on a loop that the runtime turns into jumps
START, LOOP_START = (
    "/input_control_node/_",
    "/LoopControlInputs/_",
)  # what the optimiser calls what a function, and a loop, waits for


def keep_whole(definition: Any, *, keep_loops: bool) -> None:
    """Branches are not turned into jumps, nor are loops inside of one: its function stays one, and nobody would look for jumps there."""
    functions = {function.signature.name: function.node_def for function in definition.library.function}
    branched = called_by(
        [node for nodes in (definition.node, *functions.values()) for node in nodes if is_branch(node)]
    )
    inside: set[str] = set()
    while branched:
        name = branched.pop()
        if name in functions and name not in inside:
            inside.add(name)
            branched |= called_by(functions[name])
    for name, nodes in (("", definition.node), *functions.items()):
        for node in nodes:
            if JUMPS in node.attr and (keep_loops or node.op not in LOOPS or name in inside):
                node.attr[JUMPS].b = False


def is_branch(node: Any) -> bool:
    return "then_branch" in node.attr or "branches" in node.attr


def called_by(nodes: Iterable[Any]) -> set[str]:
    """The functions that nodes name in their attributes, or are calls of."""
    values = [value for node in nodes for value in node.attr.values()]
    listed = (function.name for value in values for function in value.list.func)
    return {*(value.func.name for value in values), *listed, *(node.op for node in nodes)}


def has_loops(definition: Any) -> bool:
    bodies = (function.node_def for function in definition.library.function)
    return any(node.op in LOOPS for nodes in (definition.node, *bodies) for node in nodes)


def without_strict_inputs(definition: Any) -> Any:
    """The optimiser lets a function, and a loop, start when all that it is given is there; the runtime does not (a loop's condition
    waits for the first of its values), and the order of nodes in the graph that comes out depends on that."""
    kinds = {node.name: node.op for node in definition.node}
    given: dict[str, dict[str, None]] = {}  # what all of a function waits for → what the function is given
    starts = {node.name.rpartition(START)[0]: node.name for node in definition.node if START in node.name}
    for node in definition.node:
        start = starts.get(node.name.rpartition("/input/_")[0])
        starts_loop = [name[1:] for name in node.input if LOOP_START in name] if node.op == "Enter" else []
        for waited in [*starts_loop, *([start] if start else [])]:
            given.setdefault(waited, {}).update((f"^{name.partition(':')[0]}", None) for name in data_inputs(node))
    empty = set()
    for node in definition.node:
        if node.name in given:
            first = next(iter(given[node.name]))
            drop_inputs(node, set(given[node.name]))
            if not node.input and kinds[first[1:]] == "Merge":
                node.input.append(first)
            if not node.input:
                empty.add(f"^{node.name}")
    loosened = type(definition)(library=definition.library, versions=definition.versions)
    for node in definition.node:
        if f"^{node.name}" not in empty:
            drop_inputs(node, empty)
            loosened.node.append(node)
    return loosened


def data_inputs(node: Any) -> list[str]:
    return [name for name in node.input if not name.startswith("^")]


def drop_inputs(node: Any, unwanted: set[str]) -> None:
    kept = [name for name in node.input if name not in unwanted]
    if len(kept) < len(node.input):
        del node.input[:]
        node.input.extend(kept)
