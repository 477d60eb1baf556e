"""Nodes in the order of the graph that really runs, which decides what the executor starts first."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from legroom.engines.op.templates import Template, in_order

WORKER = Path(__file__).with_name("graph_order_worker.py")


@pytest.fixture(scope="module")
def orders():
    env = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0", "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, WORKER], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def places(real, ours):
    """Where the nodes that both have stand in the real graph, in our order."""
    known = {name: place for place, name in enumerate(real)}
    return [known[name] for name in ours if name in known]


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", ["whole", "named"])
def test_nodes_stand_as_in_the_graph_that_runs(orders, kind):
    real, ours = orders[kind]
    found = places(real, ours)
    assert len(found) > 0.98 * len(real)
    assert found == sorted(found)


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", ["recurrent", "micro-batches"])
def test_a_loops_body_has_the_nodes_and_the_order_of_the_graph_that_runs(orders, kind):
    real, ours = orders[kind]
    found = places(real, ours)
    assert len(found) > 0.98 * len(real) > 15
    assert found == sorted(found)


def template(name, *inputs):
    return Template(None, name, "Op", tuple(f"{given}:0" for given in inputs), (f"{name}:0",), (), (), (), {})


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({"a": 0, "b": 1, "c": 2}, "abc"),
        ({"a": 0, "c": 1, "b": 2}, "acb"),
        ({"a": 5, "c": 6}, "abc"),  # b has no place: it comes right after a
        ({}, "abc"),
    ],
)
def test_a_body_is_sorted_by_places_and_stays_runnable(places, expected):
    nodes = (template("a"), template("b", "a"), template("c", "a"))
    assert "".join(node.name for node in in_order(nodes, places)) == expected


def test_nothing_comes_before_what_it_waits_for_whatever_the_places_say():
    nodes = (template("a"), template("b", "a"), template("c", "b"))
    assert "".join(node.name for node in in_order(nodes, {"a": 5, "c": 1})) == "abc"
