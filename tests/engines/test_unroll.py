"""Real TensorFlow graphs laid out flat: functions inlined, branches taken, sizes and variables found."""

import pytest
from flat_graphs import comes_from, kinds, laid_out, nodes

from legroom.engines.op.ops import Array

pytestmark = pytest.mark.tensorflow


def test_functions_are_inlined():
    import tensorflow as tf

    inner = tf.function(tf.sin)
    graph = laid_out(lambda x: inner(inner(x)), (7,))
    assert kinds(graph)["Sin"] == 2
    assert not any("PartitionedCall" in kind for kind in kinds(graph))
    assert comes_from(graph, graph.returned[0], graph.arguments[0])


def test_an_inlined_function_has_the_shapes_of_its_call():
    import tensorflow as tf

    inner = tf.function(tf.sin, input_signature=[tf.TensorSpec((None, None))])
    graph = laid_out(lambda x, y: (inner(x), inner(y)), (7, 3), (2, 5))
    assert [node.op.outputs[0].shape for node in nodes(graph, "Sin")] == [(7, 3), (2, 5)]


@pytest.mark.parametrize(("size", "taken"), [(3, "Sin"), (30, "Cos")])
def test_a_branch_that_shapes_decide_is_the_one_taken(size, taken):
    import tensorflow as tf

    graph = laid_out(lambda x: tf.cond(tf.shape(x)[0] < 9, lambda: tf.sin(x), lambda: tf.cos(x)), (size,))
    assert [kind for kind in kinds(graph) if kind in ("Sin", "Cos")] == [taken]
    assert graph.notes == ()


def test_of_two_branches_that_data_decides_between_the_larger_counts_and_it_is_noted():
    import tensorflow as tf

    graph = laid_out(lambda x: tf.cond(x[0] < 9, lambda: tf.sin(x), lambda: tf.cos(tf.cos(x))), (7,))
    assert [kind for kind in kinds(graph) if kind in ("Sin", "Cos")] == ["Cos"]
    assert [note.endswith("decides at run time: the branch that makes more is counted") for note in graph.notes] == [
        True
    ]


def test_a_fused_op_of_a_size_that_only_running_tells_is_laid_out():
    import tensorflow as tf

    weights = tf.Variable(tf.ones((3, 5)))
    bias = tf.Variable(tf.ones((5,)))

    def function(x):
        rows = tf.boolean_mask(x, x[:, 0] > 0)
        return tf.nn.relu(tf.nn.bias_add(tf.matmul(rows, weights), bias))

    graph = laid_out(function, (7, 3))
    assert any("Where" in name for name in graph.unsized)


def test_shapes_that_only_values_tell_are_found():
    import tensorflow as tf

    def function(x):
        rows = tf.shape(x)[0] // 2
        return tf.reshape(x, (rows, -1)), tf.range(tf.size(x)), tf.zeros((rows, 3))

    graph = laid_out(function, (6, 4))
    assert [graph.tensors[tensor] for tensor in graph.returned] == [
        Array((3, 8), "float32"), Array((24,), "int32"), Array((3, 3), "float32")
    ]  # fmt: skip
    assert graph.unsized == ()


def test_sizes_that_only_running_tells_are_named():
    import tensorflow as tf

    def function(x):
        return tf.where(x > 0), tf.unique(x, name="distinct")[0]

    graph = laid_out(function, (6,))
    assert {name.partition(" ")[0] for name in graph.unsized} == {"Where", "Unique"}
    assert "Unique (distinct)" in graph.unsized
    assert graph.tensors[graph.returned[0]].shape == (6, 1)  # as if every element were found


def test_a_read_has_the_variables_shape_and_says_which_it_reads():
    import tensorflow as tf

    small, large = tf.Variable(tf.zeros((2, 3))), tf.Variable(tf.zeros((4, 5)))

    def function(x):
        large.assign_add(x)
        return small.read_value()

    graph = laid_out(function, (4, 5))
    (read,), (change,) = nodes(graph, "ReadVariableOp"), nodes(graph, "AssignAddVariableOp")
    assert read.op.outputs == (Array((2, 3), "float32"),)
    assert [graph.variables[node.variables[0]].shape for node in (read, change)] == [(2, 3), (4, 5)]


def test_a_handle_that_is_passed_on_is_still_the_variables():
    import tensorflow as tf

    weights = tf.Variable(tf.zeros((4, 4)))

    def function():
        passed = tf.raw_ops.Identity(input=weights.handle)
        return weights.read_value(), tf.raw_ops.ReadVariableOp(resource=passed, dtype=tf.float32)

    assert [node.variables for node in nodes(laid_out(function), "ReadVariableOp")] == [(0,), (0,)]


def test_a_variable_is_known_inside_loops_and_functions():
    import tensorflow as tf

    weights = tf.Variable(tf.zeros((4, 4)))

    def function(x):
        return tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x @ weights), (0, x))[1]

    reads = nodes(laid_out(function, (3, 4)), "ReadVariableOp")
    assert {node.variables for node in reads} == {(0,)}
    assert {node.op.outputs for node in reads} == {(Array((4, 4), "float32"),)}


def test_variables_and_arguments_know_their_place_among_the_steps_parameters():
    import tensorflow as tf

    first, second = tf.Variable(tf.zeros((2, 3))), tf.Variable(tf.zeros((4, 5)))

    def function(x, y):
        return second * tf.reduce_sum(y), first * tf.reduce_sum(x)

    graph = laid_out(function, (7,), (8,))
    arrays = [*graph.variables, *(graph.tensors[tensor] for tensor in graph.arguments)]
    by_place = {place: array.shape for place, array in zip(graph.parameters, arrays, strict=True)}
    assert by_place == {0: (7,), 1: (8,), 2: (4, 5), 3: (2, 3)}


def test_control_dependencies_are_kept():
    import tensorflow as tf

    variable = tf.Variable(tf.zeros((3,)))

    def function(x):
        before = variable.read_value()
        variable.assign(x)
        return before, variable.read_value()

    graph = laid_out(function, (3,))
    first, second = (graph.nodes.index(node) for node in nodes(graph, "ReadVariableOp"))
    assign = graph.nodes.index(nodes(graph, "AssignVariableOp")[0])
    assert first in graph.nodes[assign].after
    assert assign in graph.nodes[second].after


def test_a_function_that_xla_compiles_is_one_op():
    import tensorflow as tf

    inner = tf.function(lambda x: (tf.sin(tf.cos(x)), x[:, 0]), jit_compile=True)
    graph = laid_out(lambda x: inner(x + 1.0), (7, 3))
    (launch,) = nodes(graph, "XlaLaunch")
    assert launch.op.inputs == (Array((7, 3), "float32"),)
    assert launch.op.outputs == (Array((7, 3), "float32"), Array((7,), "float32"))
    assert not {"Sin", "Cos"} & set(kinds(graph))


def test_a_function_that_xla_compiles_for_any_shape_has_that_of_its_call():
    import tensorflow as tf

    inner = tf.function(tf.sin, jit_compile=True, input_signature=[tf.TensorSpec((None, None))])
    (launch,) = nodes(laid_out(lambda x: inner(x + 1.0), (7, 3)), "XlaLaunch")
    assert launch.op.outputs == (Array((7, 3), "float32"),)
