"""Loops that were turned into jumps, put back together; and what steps with such loops take, against the real allocator."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from flat_graphs import nodes

from legroom.engines.op.graph import LOOP_GATE
from legroom.engines.op.grappler import Device, optimise
from legroom.engines.op.jumps import has_jumps, let_shapes_change, read_order, with_loops
from legroom.engines.op.lower import lay_out
from legroom.engines.op.templates import BODY, CONDITION

pytestmark = pytest.mark.tensorflow

WORKER = pathlib.Path(__file__).with_name("jumps_worker.py")
CPU = Device(cores=2)


def turned(body, x, turns=3, **options):
    """`body` done so often to x."""
    import tensorflow as tf

    return tf.while_loop(lambda i, x: i < turns, lambda i, x: (i + 1, body(x)), (0, x), **options)[1]


def traced(function, *shapes):
    import tensorflow as tf

    return tf.function(function, autograph=False).get_concrete_function(
        *(tf.TensorSpec(shape, "float32") for shape in shapes)
    )


def looped(function, *shapes):
    definition = optimise(traced(function, *shapes), CPU, keep_loops=False)
    assert has_jumps(definition)
    return with_loops(definition, read_order(definition))


def laid_out(function, *shapes):
    concrete = traced(function, *shapes)
    definition = optimise(concrete, CPU, keep_loops=False)
    found = with_loops(definition, read_order(definition)) if has_jumps(definition) else definition
    assert found is not None
    return lay_out(found, concrete)


def loops_in(definition):
    return [node for node in definition.node if BODY in node.attr]


def kinds_in(definition):
    return {node.op for node in definition.node}


def part(found, loop, which):
    return found.parts[loop.attr[which].s.decode()]


def test_a_loop_becomes_one_node_with_a_condition_and_a_body():
    import tensorflow as tf

    found = looped(lambda x: turned(tf.sin, x), (5,))
    (loop,) = loops_in(found.definition)
    assert "Less" in kinds_in(part(found, loop, CONDITION).definition)
    assert "Sin" in kinds_in(part(found, loop, BODY).definition)
    assert not {"Sin", "Less"} & kinds_in(found.definition)


def test_a_loop_inside_a_loop_is_one_node_of_its_body():
    import tensorflow as tf

    found = looped(lambda x: turned(lambda x: turned(tf.sin, tf.exp(x)), x), (5,))
    (outer,) = loops_in(found.definition)
    body = part(found, outer, BODY).definition
    (inner,) = loops_in(body)
    assert "Exp" in kinds_in(body)
    assert "Sin" in kinds_in(part(found, inner, BODY).definition)
    assert len(found.parts) == 4


def test_what_enters_a_loop_and_stays_comes_out_of_its_body_as_it_went_in():
    import tensorflow as tf

    found = looped(lambda x, matrix: turned(lambda x: tf.matmul(x, matrix), x), (5, 5), (5, 5))
    (loop,) = loops_in(found.definition)
    body = part(found, loop, BODY)
    (product,) = [node for node in body.definition.node if node.op == "MatMul"]
    same = {given for given, result in zip(body.arguments, body.results, strict=True) if given == result}
    assert product.input[1] in same
    assert product.input[0] not in same


def test_the_second_of_two_loops_starts_from_what_the_first_gives():
    import tensorflow as tf

    found = looped(lambda x: turned(tf.sin, turned(tf.exp, x)), (5,))
    first, second = loops_in(found.definition)
    if "Exp" not in kinds_in(part(found, first, BODY).definition):
        first, second = second, first
    assert "Sin" in kinds_in(part(found, second, BODY).definition)
    assert first.name in {name.partition(":")[0] for name in second.input}


def test_no_jump_is_left():
    import tensorflow as tf

    found = looped(lambda x: turned(lambda x: turned(tf.sin, x), x), (5,))
    graphs = (found.definition, *(part.definition for part in found.parts.values()))
    assert [has_jumps(definition) for definition in graphs] == [False] * 5


def test_jumps_that_are_no_loop_are_refused():
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x, is_so = tf.raw_ops.Placeholder(dtype="float32"), tf.raw_ops.Placeholder(dtype="bool")
        no, yes = tf.raw_ops.Switch(data=x, pred=is_so)
        tf.raw_ops.Merge(inputs=[tf.sin(no), tf.exp(yes)])
    definition = graph.as_graph_def()
    assert with_loops(definition, read_order(definition)) is None


def test_jumps_inside_a_function_are_refused():
    import tensorflow as tf

    called = tf.function(lambda x: turned(tf.sin, x), autograph=False, experimental_attributes={"_noinline": True})
    assert looped(lambda x: called(x) + 1.0, (5,)) is None


def test_a_loop_inside_a_branch_stays_one_op_while_one_outside_jumps():
    import tensorflow as tf

    def function(x):
        return turned(tf.exp, tf.cond(x[0] > 1, lambda: turned(tf.sin, x), lambda: x))

    definition = optimise(traced(function, (5,)), CPU, keep_loops=False)
    inside = {node.op for branch in definition.library.function for node in branch.node_def}
    assert "StatelessWhile" in inside
    assert "Enter" not in inside
    assert "Enter" in kinds_in(definition)


def test_a_branch_inside_a_loop_and_its_gradient_are_laid_out():
    import tensorflow as tf

    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(
                lambda i, x: i < 4,
                lambda i, x: (i + 1, tf.cond(i < 3, lambda: tf.sin(x), lambda: tf.exp(x))),
                (0, x),
            )[1]
        return tape.gradient(y, x)

    graph = laid_out(function, (7, 3))
    assert [len(nodes(graph, kind)) for kind in ("Sin", "Exp", "Cos")] == [3, 1, 3]


def test_the_gradient_of_a_branch_knows_how_often_its_loop_turned():
    import tensorflow as tf

    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cond(tf.shape(x)[0] > 1, lambda: turned(tf.sin, x), lambda: x)
        return tape.gradient(y, x)

    graph = laid_out(function, (7, 3))
    assert len(nodes(graph, "Cos")) == 3
    assert graph.notes == ()


def growing(x, turns=3):
    import tensorflow as tf

    shapes = tf.TensorShape([]), tf.TensorShape([None, 4])
    return turned(lambda y: tf.concat([y, tf.exp(x)], 0), x, turns, shape_invariants=shapes)


def test_what_reads_a_state_that_grew_has_its_last_shape():
    import tensorflow as tf

    graph = laid_out(lambda x: tf.sin(growing(x)), (7, 4))
    assert [node.op.outputs[0].shape for node in nodes(graph, "ConcatV2")] == [(14, 4), (21, 4), (28, 4)]
    assert [node.op.outputs[0].shape for node in nodes(graph, "Sin")] == [(28, 4)]


def test_a_state_that_grows_inside_a_loop_has_its_last_shape_in_each_turn():
    import tensorflow as tf

    graph = laid_out(lambda x: turned(lambda x: tf.slice(tf.sin(growing(x)), (0, 0), (7, 4)), x, 2), (7, 4))
    assert [node.op.outputs[0].shape for node in nodes(graph, "Sin")] == [(28, 4)] * 2


def test_a_graph_that_contradicts_the_first_shape_is_laid_out():
    import tensorflow as tf

    graph = laid_out(lambda x: tf.sin(tf.reshape(growing(x), (4, 7, 4))), (7, 4))
    assert [node.op.outputs[0].shape for node in nodes(graph, "Sin")] == [(4, 7, 4)]


def test_shapes_are_let_go_once():
    import tensorflow as tf

    found = looped(lambda x: turned(tf.sin, x), (5,))
    assert [let_shapes_change(found), let_shapes_change(found)] == [True, False]


def test_a_loop_that_does_not_turn_gives_what_it_was_given():
    import tensorflow as tf

    graph = laid_out(lambda x: tf.sin(growing(x, turns=tf.shape(x)[0] - 7)), (7, 4))
    assert nodes(graph, LOOP_GATE) == []
    assert [node.op.outputs[0].shape for node in nodes(graph, "Sin")] == [(7, 4)]


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    env = {
        **{"TF_ENABLE_ONEDNN_OPTS": "0", "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"},
        **{"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "1000", "TF_NUM_INTEROP_THREADS": "1"},
        "LEGROOM_CACHE": str(tmp_path_factory.mktemp("cache")),
    }
    done = subprocess.run([sys.executable, WORKER], env=os.environ | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["grows", "grows_and_is_asked", "in_a_branch", "branch_inside", "nested"])
def test_a_step_with_a_loop_takes_what_was_said(peaks, kind):
    said, measured = peaks[kind]
    assert said == pytest.approx(measured, rel=0.02)
