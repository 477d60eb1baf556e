"""Functions of TensorFlow as the plain graphs that they become, and questions to ask of those."""

from collections import Counter

from made_up_graphs import Counting

from legroom.engines.op.executor import Executor
from legroom.engines.op.kernels import CpuKernels
from legroom.engines.op.planned import Planned


def laid_out(function, *shapes, dtype="float32"):
    """The function's graph as it was traced, before TensorFlow's optimiser."""
    import tensorflow as tf

    from legroom.engines.op.grappler import HOST, importable, meta_graph, returned
    from legroom.engines.op.unroll import Unroller

    specs = [tf.TensorSpec(shape, dtype) for shape in shapes]
    concrete = tf.function(function).get_concrete_function(*specs)
    return Unroller(importable(meta_graph(concrete, HOST).graph_def)).unroll(
        [f"{name}:0" for name in returned(concrete)], [tensor.op.name for tensor in concrete.inputs]
    )


def imported_names(definition):
    """The names of a GraphDef's nodes in the order that TensorFlow gives them when it reads it."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(definition, name="")
    return [operation.name for operation in graph.get_operations()]


def kinds(graph):
    return Counter(node.op.kind for node in graph.nodes)


def nodes(graph, kind):
    return [node for node in graph.nodes if node.op.kind == kind]


def comes_from(graph, tensor, ancestor):
    """Whether a tensor was computed from another one."""
    seen, todo = set(), [tensor]
    while todo:
        now = todo.pop()
        if now not in seen:
            seen.add(now)
            todo += [i for node in graph.nodes if now in node.outputs for i in node.inputs]
    return ancestor in seen


def simulate(graph):
    executor = Executor(Planned(graph, CpuKernels(1)), Counting(), 1)
    executor.place()
    executor.step()
    return executor
