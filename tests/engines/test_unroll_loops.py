"""Real loops of TensorFlow laid out turn by turn, and the lists of tensors that they fill."""

from itertools import pairwise

import pytest
from flat_graphs import comes_from, kinds, laid_out, nodes, simulate

from legroom.engines.op.graph import LOOP_END, LOOP_GATE
from legroom.engines.op.ops import Array

pytestmark = pytest.mark.tensorflow


def sines(x, turns=5, **options):
    import tensorflow as tf

    return tf.while_loop(lambda i, x: i < turns, lambda i, x: (i + 1, tf.sin(x)), (0, x), **options)[1]


def test_a_loop_is_laid_out_as_often_as_it_turns():
    graph = laid_out(sines, (7, 3))
    assert [node.op.outputs for node in nodes(graph, "Sin")] == [(Array((7, 3), "float32"),)] * 5
    assert graph.notes == ()


def test_what_decides_whether_a_loop_turns_is_computed_and_not_laid_out():
    assert "Less" not in kinds(laid_out(sines, (7, 3)))


def test_an_iteration_reads_what_the_one_before_made():
    graph = laid_out(sines, (7,))
    sin = nodes(graph, "Sin")
    assert comes_from(graph, sin[0].inputs[0], graph.arguments[0])
    assert all(comes_from(graph, after.inputs[0], before.outputs[0]) for before, after in pairwise(sin))
    assert comes_from(graph, graph.returned[0], sin[-1].outputs[0])


def test_a_loop_that_does_not_turn_leaves_nothing():
    graph = laid_out(lambda x: sines(x, turns=0), (7,))
    assert "Sin" not in kinds(graph)
    assert comes_from(graph, graph.returned[0], graph.arguments[0])


@pytest.mark.parametrize("parallel", [1, 2, 3, 6, 10])
def test_an_iteration_starts_when_so_many_before_it_have_ended_as_may_run_side_by_side(parallel):
    graph = laid_out(lambda x: sines(x, turns=8, parallel_iterations=parallel), (7,))
    gates = [number for number, node in enumerate(graph.nodes) if node.op.kind == LOOP_GATE]
    starts, ends = gates[::2], gates[1::2]
    for i, start in enumerate(starts):
        waits = [ends.index(number) for number in graph.nodes[start].after if number in ends]
        assert waits == ([i - parallel] if i >= parallel else [])


@pytest.mark.parametrize(("parallel", "ended"), [(1, 8), (3, 6), (8, 1)])
def test_what_a_loop_made_leaves_it_when_a_turn_more_could_start(parallel, ended):
    graph = laid_out(lambda x: sines(x, turns=8, parallel_iterations=parallel), (7,))
    ends = [number for number, node in enumerate(graph.nodes) if node.op.kind == LOOP_GATE][1::2]
    leaving = [node for node in graph.nodes if node.op.kind == "Identity" and set(node.after) & set(ends)]
    assert {node.after for node in leaving} == {(ends[ended - 1],)}
    (result,) = (node for node in leaving if comes_from(graph, graph.returned[0], node.outputs[0]))
    assert comes_from(graph, result.inputs[0], nodes(graph, "Sin")[-1].outputs[0])


def test_what_a_loop_of_fewer_turns_than_may_run_side_by_side_made_leaves_it_at_once():
    graph = laid_out(lambda x: sines(x, turns=2, parallel_iterations=3), (7,))
    ends = [number for number, node in enumerate(graph.nodes) if node.op.kind == LOOP_GATE][1::2]
    assert not [node for node in graph.nodes if node.op.kind == "Identity" and set(node.after) & set(ends)]


def test_a_loop_inside_a_loop_turns_anew_each_time():
    import tensorflow as tf

    def function(x):
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, sines(x, turns=i + 1)), (0, x))[1]

    assert kinds(laid_out(function, (7,)))["Sin"] == 1 + 2 + 3


def test_shapes_may_differ_from_turn_to_turn():
    import tensorflow as tf

    def function(x):
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + tf.reduce_sum(tf.zeros((i + 1, 5)))), (0, x))[
            1
        ]

    graph = laid_out(function, (7,))
    assert [node.op.outputs[0].shape for node in nodes(graph, "Fill")] == [(1, 5), (2, 5), (3, 5)]
    assert graph.unsized == ()


def wait_for_data(x):
    import tensorflow as tf

    return tf.while_loop(lambda x: tf.reduce_sum(x) > 1, lambda x: (tf.sin(x),), (x,))[0]


def test_a_loop_whose_turns_depend_on_data_counts_as_one_and_is_noted():
    graph = laid_out(wait_for_data, (7,))
    assert kinds(graph)["Sin"] == 1
    assert [note.endswith("decided at run time: counted as one turn") for note in graph.notes] == [True]


def test_a_loop_whose_turns_depend_on_data_counts_as_one_wherever_it_is_met_again():
    import tensorflow as tf

    def function(x):
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, wait_for_data(x)), (0, x))[1]

    assert kinds(laid_out(function, (7,)))["Sin"] == 3


def test_a_loop_whose_turns_depend_on_data_may_make_a_hundred_times_as_much():
    graph = laid_out(wait_for_data, (7,))
    assert graph.undecided_bytes >= 100 * 7 * 4


def gradient_of_sines(x):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = sines(x, turns=3)
    return tape.gradient(y, x)


def test_a_loop_holds_the_lists_that_it_fills_until_it_ends():
    graph = laid_out(gradient_of_sines, (7, 3))
    saved = {node.inputs[0] for node in nodes(graph, "Sin")}
    assert saved <= set(nodes(graph, "Exit")[0].inputs)


def test_the_gradient_of_a_loop_reads_what_the_loop_saved():
    graph = laid_out(gradient_of_sines, (7, 3))
    saved = [node.inputs[0] for node in nodes(graph, "Sin")]
    used = [node.inputs[0] for node in nodes(graph, "Cos")]
    assert used == saved[::-1]
    assert comes_from(graph, graph.returned[0], nodes(graph, "Cos")[-1].outputs[0])


def squares(x):
    import tensorflow as tf

    found = tf.TensorArray(x.dtype, size=4)
    _, found = tf.while_loop(lambda i, found: i < 4, lambda i, found: (i + 1, found.write(i, x[i] * 2.0)), (0, found))
    return found.stack()


def test_an_array_of_tensors_is_stacked_from_what_was_written():
    graph = laid_out(squares, (4, 5))
    (stack,) = nodes(graph, "TensorListStack")
    assert stack.inputs == tuple(node.outputs[0] for node in nodes(graph, "Mul"))
    assert stack.op.outputs == (Array((4, 5), "float32"),)


def test_a_split_array_is_read_part_by_part():
    import tensorflow as tf

    def function(x):
        parts = tf.TensorArray(x.dtype, size=4).unstack(x)
        return tf.sin(parts.read(2))

    graph = laid_out(function, (4, 5))
    (split,) = nodes(graph, "TensorListFromTensor")
    (sin,) = nodes(graph, "Sin")
    assert sin.inputs == (split.outputs[2],)
    assert sin.op.inputs == (Array((5,), "float32"),)


def test_an_element_that_was_never_written_is_made_of_zeros():
    import tensorflow as tf

    def function(x):
        found = tf.TensorArray(x.dtype, size=2, element_shape=(5,)).write(0, x)
        return tf.sin(found.read(1))

    executor = simulate(laid_out(function, (5,)))
    assert [b.size_bytes for b in executor.buffers if b.owner == "output"] == [20]


def test_what_reads_a_constant_that_waits_for_a_loop_waits_for_it():
    import tensorflow as tf

    def function(x):
        with tf.control_dependencies([sines(x)]):
            return tf.cos(tf.constant([1.0, 2.0]))

    graph = laid_out(function, (7,))
    (end,) = (number for number, node in enumerate(graph.nodes) if node.op.kind == LOOP_END)
    assert end in nodes(graph, "Cos")[0].after


def test_a_loop_starts_when_what_it_waits_for_has_run():
    import tensorflow as tf

    def function(x):
        with tf.control_dependencies([tf.cos(x)]):
            return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.sin(x)), (0, x))[1]

    graph = laid_out(function, (7,))
    first = next(node for node in graph.nodes if node.op.kind == LOOP_GATE)
    assert [graph.nodes[number].op.kind for number in first.after] == ["Cos"]
