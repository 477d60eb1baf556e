"""Graphs and traces as JSON: what comes back is what went in."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_graphs import drafts

from legroom.engines.op.codec import work_from_json, work_to_json
from legroom.engines.op.graph import Graph, Node
from legroom.engines.op.ops import Array, Op
from legroom.engines.op.trace import Dropped, EagerTrace, Ran, Resident

law = settings(max_examples=60, deadline=None)

scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=3)
attributes = st.builds(
    lambda plain, values: {**plain, **({"values": values} if values else {})},
    st.dictionaries(st.sampled_from(["strides", "T", "axis", "body"]), scalars | st.lists(scalars).map(tuple)),
    st.dictionaries(st.integers(0, 3), st.lists(st.integers() | st.booleans(), max_size=3).map(tuple), max_size=2),
)
arrays = st.builds(
    Array, st.lists(st.integers(0, 9), max_size=3).map(tuple), st.sampled_from(["float32", "bool", "resource"])
)
numbers = st.lists(st.integers(0, 9), max_size=3).map(tuple)
texts = st.lists(st.text(max_size=5), max_size=2).map(tuple)
ops = st.builds(
    Op, st.text(max_size=5), st.sampled_from(["MatMul", "Relu"]), st.lists(arrays, max_size=3).map(tuple),
    st.lists(arrays, max_size=3).map(tuple), attributes,
)  # fmt: skip
residents = st.builds(Resident, arrays, st.sampled_from(["variable", "constant", "batch"]), st.none() | st.text())
traces = st.builds(
    EagerTrace,
    st.lists(
        st.builds(Ran, ops, numbers, numbers, st.none() | st.just("train.py:3")) | st.builds(Dropped, st.integers(0, 9)),
        max_size=6,
    ).map(tuple),
    st.dictionaries(st.integers(0, 9), residents, max_size=3),
    numbers, numbers, texts,
)  # fmt: skip


@st.composite
def graphs(draw):
    """A made-up graph with attributes of all sorts."""
    graph = draw(drafts()).graph(draw(numbers), unsized=draw(texts), notes=draw(texts))
    nodes = [
        Node(
            Op(n.op.name, n.op.kind, n.op.inputs, n.op.outputs, draw(attributes)),
            n.inputs,
            n.outputs,
            n.after,
            n.variables,
        )
        for n in graph.nodes
    ]
    return Graph(
        tuple(nodes), graph.tensors, graph.variables, graph.arguments, graph.constants, graph.returned,
        graph.parameters, graph.unsized, graph.notes,
    )  # fmt: skip


def through_json(work):
    return work_from_json(json.loads(json.dumps(work_to_json(work))))


@law
@given(graphs())
def test_a_graph_survives(graph):
    assert through_json(graph) == graph


@law
@given(traces)
def test_a_trace_survives(trace):
    assert through_json(trace) == trace


def test_true_is_not_one():
    """They are equal in Python, and one must not stand for the other."""
    nodes = tuple(Node(Op("", "Relu", (), (), {"axis": value}), (), ()) for value in (True, 1, 1.0))
    back = through_json(Graph(nodes, (), ()))
    assert [type(node.op.attributes["axis"]) for node in back.nodes] == [bool, int, float]


def test_what_occurs_often_is_written_once():
    nodes = tuple(Node(Op("", "Relu", (), (), {"T": "float32"}), (), ()) for _ in range(9))
    data = work_to_json(Graph(nodes, (Array((2,), "float32"),) * 9, ()))
    assert len(data["attributes"]) == len(data["arrays"]) == 1


def model(**options):
    import keras

    layers = keras.layers
    model = keras.Sequential([keras.Input((8, 4)), layers.LSTM(4), layers.BatchNormalization(), layers.Dense(2)])
    model.compile("adam", "mse", **options)
    return model


@pytest.mark.tensorflow
@pytest.mark.parametrize(("options", "kind"), [({"jit_compile": False}, Graph), ({"run_eagerly": True}, EagerTrace)])
def test_a_real_step_survives(options, kind):
    from legroom.capture.batch import ArraySpec
    from legroom.capture.keras_fit import capture_model
    from legroom.engines.op.grappler import Device
    from legroom.engines.op.lower import lower

    batch = ArraySpec((3, 8, 4), "float32"), ArraySpec((3, 2), "float32")
    work = lower(capture_model(model(**options), batch, raw_jit=False), Device()).work
    assert isinstance(work, kind)
    assert through_json(work) == work
