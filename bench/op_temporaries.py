"""What TensorFlow's GPU kernels took beside their outputs in real training steps: a table of operations from bench/op_trace.py's traces.

    python bench/op_temporaries.py TRACES bench/data/h200_op_temporaries.jsonl

TRACES is a folder of MODEL.BATCH.POLICY.graph.json.gz. The steps' graphs, with every tensor's shape, are made again here without a
GPU, by Legroom's own code, and joined to the traces by the nodes' names. A row of the table is one operation: its kind, inputs and
outputs as [shape, dtype], the attributes that matter, `temporaries` (the bytes that were alive at once, beside the outputs, at
the fullest moment), `sizes` (of outputs whose bytes are not their shape's, by position) and the case it was seen in.
"""

import argparse
import collections
import gzip
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from legroom.engines.op.graph import Graph
from legroom.engines.op.kernels_gpu import REDUCTIONS, RULES
from legroom.engines.op.ops import Op

HERE = pathlib.Path(__file__).resolve().parent
ENDLESS = 2**62
ATTRIBUTES = (
    *("data_format", "strides", "padding", "explicit_paddings", "dilations", "equation", "keep_dims"),
    *("rnn_mode", "direction", "time_major", "is_training"),
)
IN_PLACE = ("Softmax", "LogSoftmax")  # their output is their input's buffer, and a temporary may be just as large
SMALLEST_BYTES = 16 * 1024  # reductions below that are left out
UNKNOWN_OUTPUTS = {"CudnnRNNV3": (3, 4)}

Event = list[Any]
Seen = dict[str, tuple[list[int], list[int]]]


def observe(events: list[Event]) -> Seen:
    """For each kernel by name: the sizes that were alive at its fullest moment and did not outlive it, and those that did.

    What a kernel allocates and frees before its thread turns to the next node is a temporary (or an output that nobody reads).
    """
    dropped = {event[2]: index for index, event in enumerate(events) if event[0] == "drop"}
    next_node: dict[int, int] = {}
    ends = [ENDLESS] * len(events)
    for index in range(len(events) - 1, -1, -1):
        ends[index] = next_node.get(events[index][1], ENDLESS)
        if events[index][0] == "node":
            next_node[events[index][1]] = index
    runs: dict[tuple[str, int], list[tuple[int, int, int]]] = collections.defaultdict(list)
    for index, event in enumerate(events):
        if event[0] == "tensor":
            runs[event[2], ends[index]].append((index, dropped.get(event[3], ENDLESS), event[4]))
    seen: Seen = {}
    for (name, end), made in runs.items():
        moments = [[one for one in made if one[0] <= index < one[1]] for index, _, _ in made]
        fullest = max(moments, key=lambda alive: sum(size for _, _, size in alive))
        passing = [size for _, gone, size in fullest if gone <= end]
        if name not in seen or sum(passing) > sum(seen[name][0]):
            seen[name] = passing, [size for _, gone, size in made if gone > end]
    return seen


def join(events: list[Event], graph: Graph) -> Iterator[tuple[Op, list[int], list[int]]]:
    """Each operation that ran, with its temporaries and the sizes that outlived it. A name that is not unique is left out."""
    seen = observe(events)
    names = collections.Counter(node.op.name for node in graph.nodes)
    for node in graph.nodes:
        if node.op.name not in seen or names[node.op.name] > 1:
            continue
        passing, lasting = list(seen[node.op.name][0]), seen[node.op.name][1]
        unread = collections.Counter(array.size_bytes for array in node.op.outputs)
        unread -= collections.Counter(lasting)
        for size in unread.elements():
            if size in passing and node.op.kind not in IN_PLACE:
                passing.remove(size)  # an output after all
        yield node.op, passing, lasting


def row(op: Op, passing: list[int], lasting: list[int], case: str) -> dict[str, Any]:
    attributes = {name: op.attributes[name] for name in ATTRIBUTES if op.attributes.get(name) not in (None, (), [])}
    if set(attributes.get("dilations", (1,))) == {1}:
        attributes.pop("dilations", None)
    if op.kind in REDUCTIONS and 1 in op.attributes.get("values", {}):
        attributes["values"] = {"1": op.attributes["values"][1]}
    found: dict[str, Any] = {"kind": op.kind}
    found["inputs"] = [[array.shape, array.dtype] for array in op.inputs]
    found["outputs"] = [[array.shape, array.dtype] for array in op.outputs]
    found["attributes"] = attributes
    found["temporaries"] = sorted(passing, reverse=True)
    known = [op.outputs[i].size_bytes for i in range(len(op.outputs)) if i not in UNKNOWN_OUTPUTS.get(op.kind, ())]
    rest = list((collections.Counter(lasting) - collections.Counter(known)).elements())
    if op.kind in UNKNOWN_OUTPUTS and rest:
        found["sizes"] = {"3": rest[0]}
    return found | {"case": case}


def rows(events: list[Event], graph: Graph, case: str) -> Iterator[dict[str, Any]]:
    """The table's rows of one step: operations that have a rule, and any other that took much."""
    for op, passing, lasting in join(events, graph):
        if op.kind in REDUCTIONS and sum(passing) < SMALLEST_BYTES:
            continue
        if op.kind in RULES or sum(passing) >= SMALLEST_BYTES:
            yield row(op, passing, lasting, case)


def distinct(found: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each operation once, however many layers or models have it."""
    once: dict[str, dict[str, Any]] = {}
    for one in found:
        once.setdefault(json.dumps({name: value for name, value in one.items() if name != "case"}), one)
    return sorted(once.values(), key=lambda one: (one["kind"], one["case"]))


def make_graph(case: str) -> Graph:
    """The optimised graph of a case of the zoo, as on an H200."""
    import tensorflow as tf

    from legroom.engines.op.grappler import Device, optimise, returned
    from legroom.engines.op.lower import seen_by_keras
    from legroom.engines.op.unroll import Unroller

    sys.path.insert(0, str(HERE))
    import zoo

    name, batch, policy = case.split(".")
    model, x, y = zoo.setup(name, int(batch), policy)
    model._symbolic_build(data_batch=(x, y))
    model.optimizer.build(model.trainable_variables)
    device = Device((9, 0), memory_bytes=2**37)
    step = tf.function(lambda a, b: model.train_step((a, b)), jit_compile=False)
    with seen_by_keras(device):
        concrete = step.get_concrete_function(tf.TensorSpec(x.shape, x.dtype), tf.TensorSpec(y.shape, y.dtype))
        optimised = optimise(concrete, device)
    inputs = [tensor.op.name for tensor in concrete.inputs]
    return Unroller(optimised).unroll([f"{name}:0" for name in returned(concrete)], inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    options = parser.parse_args()

    def all_rows() -> Iterator[dict[str, Any]]:
        for path in sorted(options.traces.glob("*.graph.json.gz")):
            case = path.name.removesuffix(".graph.json.gz")
            print(case, flush=True)
            with gzip.open(path, "rt") as file:
                yield from rows(json.load(file)["events"], make_graph(case), case)

    write(distinct(all_rows()), options.table)


def write(table: list[dict[str, Any]], path: pathlib.Path) -> None:
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in table))


if __name__ == "__main__":
    main()
