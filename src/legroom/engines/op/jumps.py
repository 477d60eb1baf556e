"""Loops that the runtime has turned into jumps, read as loops again.

Before it optimises a graph the runtime copies the body of every loop into the graph around it, between nodes that jump (Enter, Merge,
Switch, NextIteration, Exit). The optimiser then sorts, fuses and moves nodes of the body as it does those around it, which it does not do
to a body that is still a function. So this is the graph that runs. Here each loop's nodes are taken out of it, into graphs of
their own for its condition and its body, which can be laid out turn after turn.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from legroom.engines.op.inlining import data_inputs
from legroom.engines.op.templates import BODY, CONDITION, PARALLEL, Part, full_name

COPIED = re.compile(r".*/(?:body|cond)/_\d+/(?P<node>.+)")  # what a body's node is called in the graph around it
JUMPS = frozenset(("Enter", "Merge", "Switch", "NextIteration", "Exit", "LoopCond"))

Frame = tuple[str, ...]  # the loops that a node is inside of, the outermost first


class NotLoops(Exception):
    """Jumps that are no loops, or loops that have lost a part."""


@dataclass(frozen=True, slots=True)
class Looped:
    """A graph whose loops are single nodes: `parts` are their conditions and bodies."""

    definition: Any
    parts: Mapping[str, Part]
    places: Mapping[str, int]


@dataclass(slots=True)
class Loop:
    """The jumps of one loop, and its other nodes."""

    frame: Frame
    enters: list[Any] = field(default_factory=list)
    merges: list[Any] = field(default_factory=list)
    switches: dict[str, Any] = field(default_factory=dict)  # merge → switch
    turns: dict[str, Any] = field(default_factory=dict)  # NextIteration's name → it
    condition: Any = None
    nodes: dict[str, Any] = field(default_factory=dict)


def with_loops(definition: Any, order: Iterable[str]) -> Looped | None:
    """The graph with its loops put back together; None where it jumps in other ways. `order`: its nodes as they stand when it runs."""
    places = {name: place for place, name in enumerate(order)}
    try:
        return Builder(definition, places).build()
    except (NotLoops, CycleError):
        return None


def let_shapes_change(looped: Looped, body: str | None = None) -> bool:
    """The nodes that stand for the loop with this body, or for any, as ones whose results may have any shapes, like a Python
    function's. False if none of them was another."""
    graphs = (looped.definition, *(part.definition for part in looped.parts.values()))
    loops = [node for graph in graphs for node in graph.node if BODY in node.attr and node.op == "IdentityN"]
    chosen = [node for node in loops if body is None or node.attr[BODY].s == body.encode()]
    for node in chosen:
        node.op = "PyFunc"
        node.attr["token"].s = b""
        for name in ("Tin", "Tout"):
            node.attr[name].CopyFrom(node.attr["T"])
        del node.attr["T"]
    return bool(chosen)


class Builder:
    """Takes loops out of a graph, the innermost first."""

    def __init__(self, definition: Any, places: Mapping[str, int]) -> None:
        self.definition = definition
        self.places = places
        self.nodes = {node.name: node for node in definition.node}
        self.frames = frames_of(self.nodes)
        self.loops: dict[Frame, Loop] = {frame: Loop(frame) for frame in sorted(set(self.frames.values()), key=len)}
        self.loops.setdefault((), Loop(()))
        self.exits: dict[str, list[str]] = {}
        for node in definition.node:
            if node.op == "Exit":
                self.exits.setdefault(full_name(node.input[0]), []).append(full_name(node.name))
        self.now: dict[str, str] = {}  # tensors that have another name outside of their loop
        self.parts: dict[str, Part] = {}

    def build(self) -> Looped:
        for node in self.nodes.values():
            self.sort_in(node)
        for frame in sorted(self.loops, key=len, reverse=True):
            if frame:
                self.take_out(self.loops[frame])
        outside = self.loops[()]
        inside = (node for function in self.definition.library.function for node in function.node_def)
        if any(node.op in JUMPS for node in (*outside.nodes.values(), *inside)):
            raise NotLoops
        names = {name: name for name in outside.nodes}
        whole = type(self.definition)()
        whole.library.CopyFrom(self.definition.library)
        whole.versions.CopyFrom(self.definition.versions)
        self.copy(outside.nodes.values(), names, {}, whole)
        return Looped(whole, self.parts, self.places)

    def sort_in(self, node: Any) -> None:
        loop = self.loops[self.frames[node.name]]
        if node.op == "Enter":
            loop.enters.append(node)
        elif node.op == "Merge":
            loop.merges.append(node)
        elif node.op == "Switch":
            loop.switches[full_name(node.input[0])] = node
        elif node.op == "NextIteration":
            loop.turns[node.name] = node
        elif node.op == "LoopCond":
            loop.condition = node
        elif node.op != "Exit":
            loop.nodes[node.name] = node

    def take_out(self, loop: Loop) -> None:
        if loop.condition is None or not loop.merges:
            raise NotLoops
        enters = {full_name(node.name): node for node in loop.enters}
        start, results, arguments = [], [], {}
        for place, merge in enumerate(loop.merges):
            first, turned = self.feeds(merge, enters, loop)
            start.append(enters.pop(first))
            results.append(full_name(turned.input[0]))
            argument = f"legroom/argument_{place}:0"
            arguments[full_name(merge.name)] = argument
            switch = loop.switches.pop(full_name(merge.name), None)
            if switch is not None:
                # What leaves at :0 is read inside as well where the optimiser has mistaken it for :1 (of a branch that stayed one).
                arguments |= {f"{switch.name}:0": argument, f"{switch.name}:1": argument}
                self.leave(switch, f"{self.name_of(loop)}:{place}")
        if loop.switches:
            raise NotLoops
        for place, (name, enter) in enumerate(enters.items(), start=len(start)):
            start.append(enter)
            arguments[name] = f"legroom/argument_{place}:0"
            results.append(name)
        self.add_parts(loop, start, results, arguments)
        self.put_in_place(loop, start)

    def feeds(self, merge: Any, enters: Mapping[str, Any], loop: Loop) -> tuple[str, Any]:
        inputs = [full_name(name) for name in merge.input if not name.startswith("^")]
        first = next((name for name in inputs if name in enters), None)
        turned = next((loop.turns[name[:-2]] for name in inputs if name[:-2] in loop.turns), None)
        if first is None or turned is None or len(inputs) != 2:
            raise NotLoops
        return first, turned

    def leave(self, switch: Any, tensor: str) -> None:
        """What leaves the loop at this switch is the loop's own result."""
        for name in self.exits.get(f"{switch.name}:0", ()):
            self.now[name] = tensor

    def add_parts(self, loop: Loop, start: Sequence[Any], results: list[str], arguments: Mapping[str, str]) -> None:
        asked = [full_name(loop.condition.input[0])]
        condition = before(asked, loop.nodes, self.now)
        rest = [name for name in loop.nodes if name not in condition]
        body = {*rest, *before([*results, *(t for n in rest for t in loop.nodes[n].input)], loop.nodes, self.now)}
        name = self.name_of(loop)
        dtypes = [node.attr["T"].type for node in start]
        self.parts[f"{name}/{CONDITION}"] = self.part(loop, condition, asked, arguments, dtypes)
        self.parts[f"{name}/{BODY}"] = self.part(loop, body, results, arguments, dtypes)

    def part(
        self, loop: Loop, chosen: Iterable[str], results: list[str], arguments: Mapping[str, str], dtypes: Sequence[int]
    ) -> Part:
        wanted = set(chosen)
        nodes = [node for name, node in loop.nodes.items() if name in wanted]
        names: dict[str, str] = {}
        for node in nodes:
            match = COPIED.fullmatch(node.name)
            short = match["node"] if match and match["node"] not in names.values() else node.name
            names[node.name] = short
        made = type(self.definition)()
        made.versions.CopyFrom(self.definition.versions)
        for place, dtype in enumerate(dtypes):
            made.node.add(name=f"legroom/argument_{place}", op="Placeholder").attr["dtype"].type = dtype
        self.copy(nodes, names, arguments, made)
        places = {short: self.places[name] for name, short in names.items() if name in self.places}
        given = tuple(f"legroom/argument_{place}:0" for place in range(len(dtypes)))
        return Part(made, given, tuple(self.renamed(name, names, arguments) for name in results), places)

    def copy(self, nodes: Iterable[Any], names: Mapping[str, str], arguments: Mapping[str, str], to: Any) -> None:
        """The nodes under their new names; they wait for no jump."""
        for node in nodes:
            copy = to.node.add()
            copy.CopyFrom(node)
            copy.name = names[node.name]
            del copy.input[:]
            copy.input.extend(self.renamed(name, names, arguments) for name in map(full_name, data_inputs(node)))
            waits = (self.now.get(full_name(name), full_name(name)).rpartition(":")[0] for name in control_inputs(node))
            copy.input.extend(dict.fromkeys(f"^{names[name]}" for name in waits if name in names))

    def renamed(self, tensor: str, names: Mapping[str, str], arguments: Mapping[str, str]) -> str:
        tensor = self.now.get(tensor, tensor)
        if tensor in arguments:
            return arguments[tensor]
        node, _, output = tensor.rpartition(":")
        if node not in names:
            raise NotLoops
        return f"{names[node]}:{output}"

    def name_of(self, loop: Loop) -> str:
        name = loop.frame[-1]
        return f"{name}/loop" if name in self.places else name

    def put_in_place(self, loop: Loop, start: Sequence[Any]) -> None:
        """One node for the whole loop, in the graph around it. What it gives has the shapes of what it is given; where that turns out
        not to be so, `let_shapes_change`."""
        name = self.name_of(loop)
        node = type(self.definition)().node.add(name=name, op="IdentityN")
        node.attr["T"].list.type.extend(enter.attr["T"].type for enter in start)
        node.attr[BODY].s = f"{name}/{BODY}".encode()
        node.attr[CONDITION].s = f"{name}/{CONDITION}".encode()
        node.attr[PARALLEL].i = start[0].attr["parallel_iterations"].i
        node.input.extend(full_name(enter.input[0]) for enter in start)
        controls = (control for enter in start for control in enter.input if control.startswith("^"))
        node.input.extend(dict.fromkeys(controls))
        self.nodes[name] = node
        self.loops[loop.frame[:-1]].nodes[name] = node


def frames_of(nodes: Mapping[str, Any]) -> dict[str, Frame]:
    """The loops that each node is inside of."""
    earlier = {
        name: [p for p in producers(node) if nodes[p].op != "NextIteration" or node.op != "Merge"]
        for name, node in nodes.items()
    }
    frames: dict[str, Frame] = {}
    for name in TopologicalSorter(earlier).static_order():
        around = max((frames[p] for p in earlier[name]), key=len, default=())
        node = nodes[name]
        if node.op == "Enter":
            around = (*around, node.attr["frame_name"].s.decode())
        elif node.op == "Exit":
            around = around[:-1]
        frames[name] = around
    return frames


def producers(node: Any) -> Iterator[str]:
    for name in node.input:
        yield name.removeprefix("^").partition(":")[0]


def control_inputs(node: Any) -> Iterator[str]:
    return (name[1:] for name in node.input if name.startswith("^"))


def before(tensors: Iterable[str], nodes: Mapping[str, Any], now: Mapping[str, str]) -> set[str]:
    """Those of the nodes that these tensors are made by, and what those are made from."""
    found: set[str] = set()
    open_ones = list(tensors)
    while open_ones:
        name = full_name(open_ones.pop().removeprefix("^"))
        maker = now.get(name, name).rpartition(":")[0]
        if maker in nodes and maker not in found:
            found.add(maker)
            open_ones.extend(nodes[maker].input)
    return found


def read_order(definition: Any) -> Iterable[str]:
    """The graph's nodes as they stand when it runs."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(definition, name="")
    return (operation.name for operation in graph.get_operations())


def has_jumps(definition: Any) -> bool:
    functions = (function.node_def for function in definition.library.function)
    return any(node.op in JUMPS for nodes in (definition.node, *functions) for node in nodes)
