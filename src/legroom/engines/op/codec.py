"""A graph or an eager step's trace as JSON and back: the process that traces is not the one that simulates."""

from typing import Any

from legroom.engines.op.graph import Graph, Node
from legroom.engines.op.ops import Array, Op
from legroom.engines.op.trace import Dropped, EagerTrace, Event, Ran, Resident


class _Table:
    """Things that occur often, written once."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.places: dict[Any, int] = {}

    def place(self, key: Any, row: Any) -> int:
        if key not in self.places:
            self.places[key] = len(self.rows)
            self.rows.append(row)
        return self.places[key]

    def array(self, array: Array) -> int:
        return self.place((array.shape, array.dtype), [array.shape, array.dtype])

    def attributes(self, attributes: Any) -> int:
        values = {str(k): v for k, v in attributes.get("values", {}).items()}
        plain = {**{k: v for k, v in attributes.items() if k != "values"}, **({"values": values} if values else {})}
        return self.place(repr(plain), plain)


def work_to_json(work: Graph | EagerTrace) -> dict[str, Any]:
    return graph_to_json(work) if isinstance(work, Graph) else trace_to_json(work)


def work_from_json(data: dict[str, Any]) -> Graph | EagerTrace:
    return graph_from_json(data) if "nodes" in data else trace_from_json(data)


def graph_to_json(graph: Graph) -> dict[str, Any]:
    arrays, attributes = _Table(), _Table()
    nodes = [
        [n.op.name, n.op.kind, n.inputs, n.outputs, n.after, n.variables, attributes.attributes(n.op.attributes)]
        for n in graph.nodes
    ]
    return {
        "nodes": nodes,
        "tensors": [arrays.array(array) for array in graph.tensors],
        "variables": [arrays.array(array) for array in graph.variables],
        "arrays": arrays.rows,
        "attributes": attributes.rows,
        "undecided_bytes": graph.undecided_bytes,
        **{name: list(getattr(graph, name)) for name in PLAIN},
    }


PLAIN = ("arguments", "constants", "returned", "parameters", "unsized", "notes")


def graph_from_json(data: dict[str, Any]) -> Graph:
    arrays = [Array(tuple(shape), dtype) for shape, dtype in data["arrays"]]
    tensors = tuple(arrays[i] for i in data["tensors"])
    attributes = [read_attributes(row) for row in data["attributes"]]
    nodes = []
    for name, kind, inputs, outputs, after, variables, place in data["nodes"]:
        op = Op(name, kind, tuple(tensors[i] for i in inputs), tuple(tensors[i] for i in outputs), attributes[place])
        nodes.append(Node(op, tuple(inputs), tuple(outputs), tuple(after), tuple(variables)))
    return Graph(
        tuple(nodes),
        tensors,
        tuple(arrays[i] for i in data["variables"]),
        **{name: tuple(data[name]) for name in PLAIN},
        undecided_bytes=data["undecided_bytes"],
    )


def read_attributes(row: dict[str, Any]) -> dict[str, Any]:
    found = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items() if name != "values"
    }
    if "values" in row:
        found["values"] = {int(position): tuple(value) for position, value in row["values"].items()}
    return found


def trace_to_json(trace: EagerTrace) -> dict[str, Any]:
    arrays, attributes = _Table(), _Table()
    events: list[Any] = []
    for event in trace.events:
        if isinstance(event, Dropped):
            events.append(event.tensor)
            continue
        op = event.op
        given = [[arrays.array(array) for array in part] for part in (op.inputs, op.outputs)]
        place = attributes.attributes(op.attributes)
        events.append([op.name, op.kind, event.inputs, event.outputs, *given, place, event.line])
    residents = [[n, arrays.array(r.array), r.role, r.name] for n, r in trace.residents.items()]
    parts = {name: list(getattr(trace, name)) for name in ("returned", "kept", "notes")}
    return {"events": events, "residents": residents, "arrays": arrays.rows, "attributes": attributes.rows, **parts}


def trace_from_json(data: dict[str, Any]) -> EagerTrace:
    arrays = [Array(tuple(shape), dtype) for shape, dtype in data["arrays"]]
    attributes = [read_attributes(row) for row in data["attributes"]]
    events: list[Event] = []
    for row in data["events"]:
        if isinstance(row, int):
            events.append(Dropped(row))
            continue
        name, kind, inputs, outputs, given, made, place, line = row
        op = Op(name, kind, tuple(arrays[i] for i in given), tuple(arrays[i] for i in made), attributes[place])
        events.append(Ran(op, tuple(inputs), tuple(outputs), line))
    residents = {number: Resident(arrays[place], role, name) for number, place, role, name in data["residents"]}
    return EagerTrace(tuple(events), residents, tuple(data["returned"]), tuple(data["kept"]), tuple(data["notes"]))
